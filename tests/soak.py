"""Train for hours with evaluations and saves; sample what the process uses.

    python -m tests.soak --minutes 120 --out runs/soak

A run of `tiny` takes its validation loss, evaluates a task and saves every 100 updates. Every ten
seconds, a line of samples.jsonl gets the memory, threads and open files of this process. `resident`
is anonymous resident memory: the kernel drops and rereads pages of files as it likes. `allocated`
is what malloc has handed out; the rest of `resident` is free memory that its arenas keep, and that
of Python's own allocator. --minutes 0 reads the samples of an earlier execution. Prints the means
of ten parts of the time and draws them in soak.png.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import matplotlib.figure
import numpy as np

from training import command

EVERY = 100  # updates
OVERRIDES = ["train.num_steps=100000000", "train.keep=3", "train.eval_tasks=[kv]"]
OVERRIDES += [f"train.{name}_every={EVERY}" for name in ("save", "log", "eval")]
PANELS = {"resident": "memory (MiB)", "threads": "threads", "files": "open files"}
FIELDS = ("resident", "allocated", "threads", "files")


def allocated(path: Path) -> float:
    """Return the MiB that malloc has handed out, in all arenas; glibc writes them to `path`."""
    libc = ctypes.CDLL("libc.so.6")
    libc.fopen.restype = ctypes.c_void_p
    libc.malloc_info.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.fclose.argtypes = (ctypes.c_void_p,)
    file = libc.fopen(str(path).encode(), b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
    _, _, total = path.read_text().rpartition("</heap>")
    free = re.findall(r'<total type="(?:fast|rest)" count="\d+" size="(\d+)"', total)
    mapped = re.findall(r'<total type="mmap" count="\d+" size="(\d+)"', total)
    system = re.findall(r'<system type="current" size="(\d+)"', total)
    return (sum(map(int, system + mapped)) - sum(map(int, free))) / 2**20


def sample(out: Path) -> dict[str, float]:
    """Return what this process uses now, and the newest step that it saved."""
    status = Path("/proc/self/status").read_text()
    values = dict(line.split(":", 1) for line in status.splitlines())
    steps = [int(path.name) for path in out.glob("run/checkpoints/*") if path.name.isdigit()]
    return {
        "resident": int(values["RssAnon"].split()[0]) / 1024,
        "allocated": allocated(out / "malloc.xml"),
        "threads": int(values["Threads"]),
        "files": len(os.listdir("/proc/self/fd")),
        "step": max(steps, default=0),
    }


def take_samples(minutes: float, out: Path) -> None:
    """Sample this process for some minutes, then stop its training."""
    start = time.monotonic()
    with (out / "samples.jsonl").open("w") as samples:
        while (seconds := time.monotonic() - start) < 60 * minutes:
            samples.write(json.dumps(sample(out) | {"minutes": seconds / 60}) + "\n")
            samples.flush()
            time.sleep(10)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.minutes:
        threading.Thread(target=take_samples, args=(arguments.minutes, out), daemon=True).start()
        sys.argv = ["train.py", "tiny", *OVERRIDES, "--workdir", str(out / "run")]
        command.train(__doc__)
    lines = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    print(f"| minutes | updates | saves | {' | '.join(FIELDS)} |", "|---" * 7 + "|", sep="\n")
    for part in np.array_split(np.arange(len(lines)), min(10, len(lines))):
        last = lines[part[-1]]
        means = [np.mean([lines[i][field] for i in part]) for field in FIELDS]
        numbers = f"{last['minutes']:.0f} | {last['step']:,} | {last['step'] // EVERY:,}"
        print(f"| {numbers} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    figure = matplotlib.figure.Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(len(PANELS), sharex=True)
    minutes = [line["minutes"] for line in lines]
    for axes, (field, label) in zip(panels, PANELS.items(), strict=True):
        axes.plot(minutes, [line[field] for line in lines], label=field)
        axes.set(ylabel=label, ylim=(0, None))
    panels[0].plot(minutes, [line["allocated"] for line in lines], label="allocated by malloc")
    panels[0].legend(loc="lower right")
    axes.set(xlabel="minutes of training")
    figure.savefig(out / "soak.png")


if __name__ == "__main__":
    main()
