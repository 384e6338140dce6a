"""Promises of SECURITY.md: no connections, hashes of packages; ruff checks calls."""

import re
import socket

import pytest

from tests.conftest import ROOT


def test_locks_are_installed_by_hash():
    """So pip refuses a package without a version and a hash."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in makefile.splitlines() if re.search(r"pip install .*-r ", line)]
    assert len(installs) > 3 and all("--require-hashes" in line for line in installs)


OUTSIDE = ("192.0.2.1", 9)  # of RFC 5737: nobody has it


def test_connections_beyond_this_machine_are_blocked(run_script):
    """The guard of all tests, in this process and in those that tests start."""
    with socket.socket() as connection, pytest.raises(PermissionError):
        connection.connect(OUTSIDE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    code = f"import socket; socket.socket().connect({OUTSIDE})"
    assert "PermissionError" in run_script("-c", code, check=False).stderr
