"""Commands under unusual conditions of the machine. Linux; mounts need root."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faults import commands
from tests.faults.runner import ROOT, Runner, judge, run_undisturbed

_MOUNT = "unshare -m sh -c 'mount {} && exec \"$@\"' sh"
# Each is a prefix of the command; FOLDER is where the command writes.
CONDITIONS = {
    "full tmpfs": "",
    "read-only directory": _MOUNT.format("--bind FOLDER FOLDER && mount -o remount,ro,bind FOLDER"),
    "16 descriptors": "sh -c 'ulimit -n 16; exec \"$@\"' sh",
    "64 descriptors": "sh -c 'ulimit -n 64; exec \"$@\"' sh",
    "address space of 0.9 GB": "sh -c 'ulimit -v 900000; exec \"$@\"' sh",
    "address space of 1.3 GB": "sh -c 'ulimit -v 1300000; exec \"$@\"' sh",
    "address space of 3 GB": "sh -c 'ulimit -v 3000000; exec \"$@\"' sh",
    "no HOME": "env -u HOME",
    "HOME that does not exist": "env HOME=/nonexistent",
    "deleted working directory": "sh -c 'mkdir FOLDER/cwd && cd FOLDER/cwd && rmdir ../cwd && "
    'exec "$@"\' sh',
    "no /dev/shm": _MOUNT.format("-t tmpfs -o ro,size=4k none /dev/shm"),
    "clock set back a year": "env INJECT_CLOCK=-31536000",
    "no locks (ENOLCK)": "env INJECT_LOCKS=no",
}
_SECONDS = 150


def run_all(runner: Runner, name: str) -> Iterator[tuple[str, str]]:
    """Run a command under each condition, then without it; yield condition and both outcomes."""
    case, folder, command, expected, _ = run_undisturbed(runner, name)
    for condition, prefix in CONDITIONS.items():
        commands.start(case, runner.shared, folder)
        with _small_disk(case, runner, folder) if not prefix else contextlib.nullcontext():
            text = _run(prefix.replace("FOLDER", str(folder)), command)
            if not prefix:
                subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)
            text = f"{text}; then {judge(runner, command, folder, expected)}"
        print(f"| {name} | {condition} | {text} |", flush=True)
        yield condition, text


@contextlib.contextmanager
def _small_disk(case: commands.Case, runner: Runner, folder: Path) -> Iterator[None]:
    """Mount a disk with room for what the command finds, and 64 KiB more."""
    kib = int(subprocess.check_output(["du", "-sk", folder], text=True).split()[0]) + 64
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", folder], check=True)
    try:
        commands.start(case, runner.shared, folder)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def _run(prefix: str, command: str) -> str:
    first, *rest = shlex.split(command)
    arguments = ["-m", *rest] if first == "-m" else [str(ROOT / first), *rest]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [*shlex.split(prefix), sys.executable, *arguments]
    process = subprocess.Popen(
        line, cwd=ROOT, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"hangs ({_SECONDS} s)"
    lines = output.strip().splitlines() or [""]
    if process.returncode == 0:
        warned = [text for text in lines if "warning" in text.lower()]
        return f"works ({warned[0][:120]})" if warned else "works"
    if process.returncode < 0:
        return f"{signal.Signals(-process.returncode).name}: {lines[-1][:120]}"
    noise = " after a traceback" if "Traceback" in output else ""
    return f"status {process.returncode}{noise}: {lines[-1][:200]}"
