"""Train for hours with evaluations and saves; sample what the process uses.

    python -m tests.soak --minutes 120 --out runs/soak

A run of `tiny` takes its validation loss, evaluates a task and saves every 100 updates. Every ten
seconds, a line of samples.jsonl gets the process's memory, threads and open files. Memory is
anonymous resident memory: the kernel drops and rereads pages of files as it likes.
--minutes 0 reads the samples of an earlier execution. Prints the means of ten parts of the time
and draws them in soak.png.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.figure
import numpy as np

ROOT = Path(__file__).parent.parent
EVERY = 100  # updates
OVERRIDES = ["train.num_steps=100000000", "train.keep=3", "train.eval_tasks=[kv]"]
OVERRIDES += [f"train.{name}_every={EVERY}" for name in ("save", "log", "eval")]
FIELDS = {"memory": "memory (MiB)", "threads": "threads", "files": "open files"}


def sample(pid: int, workdir: Path) -> dict[str, float]:
    """Return what a process uses now, and the newest step that it saved."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = dict(line.split(":", 1) for line in status.splitlines())
    steps = [int(path.name) for path in workdir.glob("checkpoints/*") if path.name.isdigit()]
    return {
        "memory": int(values["RssAnon"].split()[0]) / 1024,
        "threads": int(values["Threads"]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "step": max(steps, default=0),
    }


def train(minutes: float, out: Path) -> None:
    """Train below `out` and sample; raise RuntimeError if training ends by itself."""
    start, log = time.monotonic(), out / "train.log"
    command = [sys.executable, "train.py", "tiny", *OVERRIDES, "--workdir", str(out / "run")]
    with log.open("w") as output, (out / "samples.jsonl").open("w") as samples:
        trainer = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        while (seconds := time.monotonic() - start) < 60 * minutes:
            time.sleep(10)
            if trainer.poll() is not None:
                raise RuntimeError(f"training ended with status {trainer.returncode}: {log}")
            line = sample(trainer.pid, out / "run") | {"minutes": seconds / 60}
            samples.write(json.dumps(line) + "\n")
            samples.flush()
        trainer.send_signal(signal.SIGTERM)
        trainer.wait()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.minutes:
        train(arguments.minutes, out)
    lines = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    print(
        "| minutes | updates | saves | memory | threads | files |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    for part in np.array_split(np.arange(len(lines)), 10):
        last = lines[part[-1]]
        means = [np.mean([lines[i][field] for i in part]) for field in FIELDS]
        numbers = f"{last['minutes']:.0f} | {last['step']:,} | {last['step'] // EVERY:,}"
        print(f"| {numbers} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    figure = matplotlib.figure.Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(len(FIELDS), sharex=True)
    for axes, (field, label) in zip(panels, FIELDS.items(), strict=True):
        axes.plot([line["minutes"] for line in lines], [line[field] for line in lines])
        axes.set(ylabel=label, ylim=(0, None))
    axes.set(xlabel="minutes of training")
    figure.savefig(out / "soak.png")


if __name__ == "__main__":
    main()
