"""Run commands in forked children, under the library of inject.c, and judge what they leave."""

import ctypes
import importlib
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults import commands

ROOT = commands.ROOT
_SECONDS = 300  # before a command counts as hanging


def load_library() -> ctypes.CDLL:
    """Build inject.c, start this process again under it, and return it."""
    path = Path(tempfile.gettempdir()) / f"ropewalk-inject-{os.getuid()}.so"
    if os.environ.get("LD_PRELOAD") != str(path):
        source = Path(__file__).with_name("inject.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
        os.environ["LD_PRELOAD"] = str(path)
        os.execv(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]])
    return ctypes.CDLL(None)


class Child(NamedTuple):
    """A command that runs."""

    process: int
    output: Path
    calls: Path


class Runner:
    """Runs commands in forked children: importing JAX takes seconds, a fork none."""

    def __init__(self, shared: Path, names: Sequence[str]):
        """Import what the named cases need."""
        self.library, self.shared = load_library(), shared
        for module in {module for name in names for module in commands.CASES[name].modules}:
            importlib.import_module(module)

    def run(self, command: str, folder: Path, n: int = 0, error: int = 0, log: Path | None = None):
        """Return status, output and number of calls of a command with a fault at the n-th call."""
        return self.wait(self.start(command, folder, n, error, log))

    def start(self, command: str, folder: Path, n=0, error=0, log=None, name="") -> "Child":
        """Start a command; `name` sets the output apart from that of others in the folder."""
        output, calls = (folder.with_name(folder.name + name + end) for end in (".out", ".calls"))
        child = os.fork()
        if child == 0:
            self._execute(command, folder, n, error, output, calls, log)
        return Child(child, output, calls)

    def wait(self, child: "Child", seconds: float = _SECONDS) -> tuple[int | str, str, int]:
        """Return what `run` does; kill the command after some seconds."""
        deadline = time.monotonic() + seconds
        status: int | str = "hangs"
        while time.monotonic() < deadline and status == "hangs":
            ended, number = os.waitpid(child.process, os.WNOHANG)
            status = os.waitstatus_to_exitcode(number) if ended else status
            time.sleep(0 if ended else 0.01)
        if status == "hangs":
            os.kill(child.process, signal.SIGKILL)
            os.waitpid(child.process, 0)
        count = int(child.calls.read_text()) if child.calls.exists() else 0
        child.calls.unlink(missing_ok=True)
        return status, child.output.read_text(errors="replace"), count

    def _execute(self, command, folder, n, error, output, calls, log) -> None:
        status = 1
        try:
            file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.chdir(ROOT)
            first, *rest = shlex.split(command)
            sys.argv = rest if first == "-m" else [first, *rest]
            fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600) if log else -1
            self.library.arm(str(folder).encode(), ctypes.c_long(n), error, fd)
            if first == "-m":
                runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(first, run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            count = self.library.counted()
            self.library.arm(b"", ctypes.c_long(0), 0, -1)
            Path(calls).write_text(str(count))
            sys.stdout.flush()
            os._exit(status)


class Undisturbed(NamedTuple):
    """An execution without a fault: digests that it leaves, and its calls of the file system."""

    case: commands.Case
    folder: Path
    command: str
    expected: dict[str, str]
    num_calls: int


def run_undisturbed(runner: Runner, name: str, log: Path | None = None) -> Undisturbed:
    """Run a case without a fault; end this program if it fails. `log` gets its calls."""
    case, folder = commands.CASES[name], runner.shared.parent / name
    command = commands.fill(case.arguments, runner.shared, folder)
    commands.start(case, runner.shared, folder)
    status, output, num_calls = runner.run(command, folder, log=log)
    if status:
        raise SystemExit(f"{name}: {command} fails without a fault:\n{output}")
    return Undisturbed(case, folder, command, commands.contents(folder), num_calls)


def judge(runner: Runner, command: str, folder: Path, expected: dict[str, str]) -> str:
    """Run the command again and describe the outcome."""
    status, output, _ = runner.run(command, folder)
    last = output.strip().splitlines()[-1:] or [""]
    if status == 2 and ": error: " in last[0] and "Traceback" not in output:
        return "refused"
    if status != 0:
        return f"WRONG: status {status}: {last[0][:200]}"
    found = commands.contents(folder)
    different = sorted(k for k in found.keys() | expected if found.get(k) != expected.get(k))
    return f"WRONG: differs in {', '.join(different[:4])}" if different else "same"
