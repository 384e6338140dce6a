"""Trains with the code of two commits on this machine: equal to the bit, or where they differ.

`make compare REV=HEAD~3` holds that commit against the working tree.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

ROOT = Path(__file__).parent.parent
CONFIGS = ("tiny", "mla_tiny")
TIMING = {"seconds", "tokens_per_second", "mfu"}


def train(code: Path, config: str, workdir: Path, prepared: Path) -> None:
    """Train `config` with the code in the folder `code`."""
    command = [sys.executable, "train.py", config, "--workdir", str(workdir)]
    command += [f"data.prepared_root={prepared}"]
    subprocess.run(command, cwd=code, check=True, stderr=subprocess.PIPE)


def difference(first: Path, second: Path) -> str:
    """The first thing in which two runs differ; empty if there is none."""
    lines = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (first, second)
    ]
    for row, other in zip(*lines, strict=True):
        for name in (row.keys() & other.keys()) - TIMING:
            if row[name] != other[name]:
                return f"{name} of step {row['step']}: {row[name]!r} and {other[name]!r}"
    step = lines[0][-1]["step"]
    with ocp.StandardCheckpointer() as checkpointer:
        states = []
        for run in (first, second):
            path = (run / "checkpoints" / str(step)).absolute()
            stored = [path / "params", path / "opt_state"]
            states.append(
                [
                    checkpointer.restore(
                        item,
                        jax.tree.map(
                            lambda leaf: np.empty(leaf.shape, leaf.dtype),
                            checkpointer.metadata(item).item_metadata.tree,  # pyright: ignore
                        ),
                    )
                    for item in stored
                ]
            )
    leaves = [dict(jax.tree_util.tree_flatten_with_path(state)[0]) for state in states]
    for path in leaves[0] | leaves[1]:
        value, other = (np.asarray(tree.get(path, np.nan)) for tree in leaves)
        if value.tobytes() != other.tobytes():
            return f"state {jax.tree_util.keystr(path)} at step {step}"
    return ""


def main() -> int:
    """Compares the commit named on the command line with the working tree."""
    revision = sys.argv[1]
    different = False
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "code"
        old.mkdir()
        archive = subprocess.run(
            ["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", str(old)], input=archive.stdout, check=True)
        for config in CONFIGS:
            runs = Path(folder) / config / "old", Path(folder) / config / "new"
            for code, run in zip((old, ROOT), runs, strict=True):
                train(code, config, run, Path(folder) / "data")
            message = difference(*runs)
            different |= bool(message)
            print(f"{config}: {message or f'bit-equal to {revision}'}")
    return int(different)


if __name__ == "__main__":
    sys.exit(main())
