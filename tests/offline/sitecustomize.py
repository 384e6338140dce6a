"""Block connections beyond this machine; Python imports this if the folder is in PYTHONPATH."""

import sys


def _block(event: str, arguments: tuple) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if isinstance(address, tuple) and not is_loopback(str(address[0])):
            raise PermissionError(f"a test connects to {address}")


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1", "") or host.startswith("127.")


sys.addaudithook(_block)
