"""Inject a fault at the n-th call of the file system of a command; run it again; compare.

    python -m tests.faults                              every command, 20 faults each
    python -m tests.faults --commands train --faults 0  a fault at every call
    python -m tests.faults --power                      power losses instead of faults

A fault is an error of the call (EIO, ENOSPC, EMFILE, EINTR) or SIGKILL. Then the same command runs
without a fault. It must leave what an undisturbed execution leaves, or refuse in one line. With
--power, the disk instead returns to what was synced before the call. Needs a C compiler.
"""

import argparse
import collections
import ctypes
import datetime
import errno
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults import commands, power

ROOT = commands.ROOT
ERRORS = (-1, errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR)
_MODULES = "training.sweep", "evals.runner", "reporting.page", "probes.__main__", "interop.export"
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


class Runner:
    """Runs commands in forked children: importing JAX takes seconds, a fork none."""

    def __init__(self, shared: Path):
        self.library, self.shared = load_library(), shared
        for name in _MODULES:
            importlib.import_module(name)

    def run(self, command: str, folder: Path, n: int = 0, error: int = 0, log: Path | None = None):
        """Return status, output and number of calls of a command with a fault at the n-th call."""
        output, calls = folder.with_suffix(".out"), folder.with_suffix(".calls")
        child = os.fork()
        if child == 0:
            self._execute(command, folder, n, error, output, calls, log)
        deadline = time.monotonic() + _SECONDS
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "hangs", output.read_text(), 0
            time.sleep(0.02)
        count = int(calls.read_text()) if calls.exists() else 0
        calls.unlink(missing_ok=True)
        return os.waitstatus_to_exitcode(ended[1]), output.read_text(errors="replace"), count

    def _execute(self, command, folder, n, error, output, calls, log) -> None:
        status = 1
        try:
            file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.chdir(ROOT)
            first, *rest = shlex.split(command)
            name = rest[0] if first == "-m" else first.removesuffix(".py")
            sys.argv = rest if first == "-m" else [first, *rest]
            module = importlib.import_module(name)
            if hasattr(module, "__path__"):
                module = importlib.import_module(f"{name}.__main__")
            fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600) if log else -1
            self.library.arm(str(folder).encode(), ctypes.c_long(n), error, fd)
            status = module.main() or 0
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


def _choose(count: int, wanted: int) -> list[int]:
    """Return `wanted` numbers from 1 to `count`, evenly spread; all for 0."""
    if not wanted or wanted >= count:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def _judge(runner: Runner, command: str, folder: Path, expected: dict[str, str]) -> str:
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


def inject(runner: Runner, name: str, wanted: int, offset: int) -> collections.Counter:
    """Inject faults into one command; return counts of (kind, outcome)."""
    case, folder = commands.CASES[name], runner.shared.parent / name
    command = commands.fill(case.arguments, runner.shared, folder)
    commands.start(case, runner.shared, folder)
    status, output, count = runner.run(command, folder)
    if status:
        raise SystemExit(f"{name}: {command} fails without a fault:\n{output}")
    expected, counts = commands.contents(folder), collections.Counter()
    for index, n in enumerate(_choose(count, wanted)):
        error = ERRORS[(index + offset) % len(ERRORS)]
        kind = "SIGKILL" if error == -1 else errno.errorcode[error]
        commands.start(case, runner.shared, folder)
        status, output, _ = runner.run(command, folder, n, error)
        outcome = _judge(runner, command, folder, expected)
        if error != -1 and ("Traceback" in output or status == "hangs"):
            last = output.strip().splitlines()[-1][:160]
            outcome += f"; the fault itself: {'hangs' if status == 'hangs' else last}"
        if outcome not in ("same", "refused"):
            print(f"{name} call {n} of {count} {kind}: {outcome}", flush=True)
        counts[kind, _short(outcome)] += 1
    print(f"{name}: {count} calls, {sum(counts.values())} faults", flush=True)
    return counts


def _short(outcome: str) -> str:
    if outcome in ("same", "refused"):
        return outcome
    return "WRONG" if "WRONG" in outcome else "noisy"  # noisy: a traceback, or a hanging process


def lose_power(runner: Runner, name: str, wanted: int) -> collections.Counter:
    """Replay a command up to some calls as a disk that lost what was not synced."""
    case, folder = commands.CASES[name], runner.shared.parent / name
    command = commands.fill(case.arguments, runner.shared, folder)
    log = folder.with_suffix(".log")
    commands.start(case, runner.shared, folder)
    before = power.read_folder(folder)
    status, output, _ = runner.run(command, folder, log=log)
    if status:
        raise SystemExit(f"{name}: {command} fails:\n{output}")
    expected, counts = commands.contents(folder), collections.Counter()
    calls = power.read_log(log)
    for n in _choose(len(calls), wanted):
        for policy in power.POLICIES:
            power.write_folder(folder, power.replay(before, calls[:n], policy, folder))
            outcome = _judge(runner, command, folder, expected)
            if "WRONG" in outcome:
                print(f"{name} call {n} of {len(calls)}, {policy}: {outcome}", flush=True)
            counts[policy, outcome.partition(":")[0]] += 1
    return counts


def main() -> None:
    """Run the command line; print and record a table of outcomes."""
    parser = argparse.ArgumentParser(
        "python -m tests.faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--commands", default=",".join(commands.CASES), help="default: all")
    parser.add_argument("--faults", type=int, default=20, help="for each command; 0: at every call")
    parser.add_argument("--offset", type=int, default=0, help="of the first kind of fault")
    parser.add_argument("--power", action="store_true", help="power losses instead of faults")
    parser.add_argument("--tally", type=Path, help="add the counts to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ |= {
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_COMPILATION_CACHE_DIR": f"{temporary}/compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        shared = Path(temporary) / "shared"
        shared.mkdir()
        runner = Runner(shared)

        def run_shared(text: str) -> None:
            status, output, _ = runner.run(commands.fill(text, shared, shared), shared)
            if status:
                raise SystemExit(f"{text}:\n{output}")

        commands.prepare_shared(shared, run_shared)
        rows, is_wrong = [], False
        for name in arguments.commands.split(","):
            if arguments.power:
                counts = lose_power(runner, name, arguments.faults)
            else:
                counts = inject(runner, name, arguments.faults, arguments.offset)
            for (kind, outcome), number in sorted(counts.items()):
                rows.append(f"| {name} | {kind} | {outcome} | {number} |")
                is_wrong |= outcome not in ("same", "refused")
        print("| command | fault | outcome | number |", "|---|---|---|---|", *rows, sep="\n")
    if arguments.tally:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.check_output(command, cwd=ROOT, text=True).strip()
        date = datetime.date.today().isoformat()
        with arguments.tally.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"commit": commit, "date": date, "rows": rows}) + "\n")
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
