"""Train with the code of two commits on this machine: equal to the bit, or where they differ.

`make compare REV=HEAD~3` compares that commit with the working tree.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIGS = ("tiny", "mla_tiny")
TIMING = {"seconds", "tokens_per_second", "mfu"}


def train(code: Path, config: str, workdir: Path, prepared: Path) -> None:
    """Train `config` with the code in the folder `code`."""
    command = [sys.executable, "train.py", config, "--workdir", str(workdir)]
    command += [f"data.prepared_root={prepared}"]
    subprocess.run(command, cwd=code, check=True, stderr=subprocess.PIPE)


def outcome(run: Path) -> dict[str, object]:
    """Return the numbers of each step and the digest of each array of the last checkpoint."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    numbers = {f"{name} of step {row['step']}": row[name] for row in rows for name in row}
    digests = json.loads((run / f"checkpoints/{rows[-1]['step']}/digests/metadata").read_text())
    return numbers | {f"array {name}": digest for name, digest in digests["arrays"].items()}


def difference(first: Path, second: Path) -> str:
    """Return the first thing in which two runs differ; empty if there is none."""
    ours, theirs = outcome(first), outcome(second)
    for name in ours | theirs:
        if name.split()[0] not in TIMING and ours.get(name) != theirs.get(name):
            return f"{name}: {ours.get(name)!r} and {theirs.get(name)!r}"
    return ""


def main() -> int:
    """Compare the commit named on the command line with the working tree."""
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
