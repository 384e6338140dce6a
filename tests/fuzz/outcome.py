"""Judge one execution of a target: it may succeed, or raise a ValueError of one line."""

import contextlib
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.targets import ROOT, Target

SECONDS = 10  # of computing; a reader that waits, on a pipe for example, is stopped after 5 min
# Audit events of Python that change files or leave the process, and where their paths are.
_CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree", "os.link")
_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect")
# What imports and libraries read.
_READABLE = (str(ROOT), sys.prefix, sys.base_prefix, "/proc", "/usr", *sys.path[1:])
_state: dict[str, str] = {}


def _audit(event: str, arguments: tuple) -> None:
    folder = _state.get("folder")
    if folder is None:
        return
    if event in _FORBIDDEN:
        raise AssertionError(f"{event} {arguments!r:.100}")
    if event == "open" and isinstance(arguments[0], str | bytes):
        path, mode = arguments[0], str(arguments[1])
        path = path.decode(errors="replace") if isinstance(path, bytes) else path
        is_write = any(sign in mode for sign in "wax+")
        allowed = (folder, _state["shared"], *(() if is_write else _READABLE))
        if not path.startswith(allowed):
            raise AssertionError(f"opens {path!r:.100}")
    elif event in _CHANGES and not str(arguments[0]).startswith((folder, "/dev/shm/")):
        raise AssertionError(f"{event} {arguments!r:.100}")


@contextlib.contextmanager
def guarded(shared: Path) -> Iterator[None]:
    """Install the guards of file access and of time for this process.

    Args:
      shared: a folder that targets may read too.
    """
    if "shared" not in _state:
        sys.addaudithook(_audit)
    _state["shared"] = str(shared)
    old = {number: signal.signal(number, _stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _stop(*_) -> None:
    raise TimeoutError(f"computed more than {SECONDS} s, or waited")


def _limit_time(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 30 * seconds)


def problem(target: Target, data: bytes) -> str:
    """Run a target; describe what it must not do, or return an empty text."""
    folder = Path(tempfile.mkdtemp(dir=_state["shared"]))
    _limit_time(SECONDS)
    _state["folder"] = str(folder)
    try:
        target.read(folder, data)
    except ValueError as error:
        message = str(error).replace(str(folder), "")
        if len(message) > 300:
            return f"an error of {len(message)} characters: {message[:80]}"
        return "" if message.isprintable() else f"an error with control characters: {message!r:.80}"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(str(ROOT))]
        ours = [f for f in ours if ".venv" not in f.filename and "tests/fuzz" not in f.filename]
        where = f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}" if ours else "?"
        return f"{where}: {type(error).__name__}: {str(error)[:120]}"
    finally:
        _limit_time(0)
        del _state["folder"]
        shutil.rmtree(folder, ignore_errors=True)
    return ""
