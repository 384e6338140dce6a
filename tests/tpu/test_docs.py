"""Every command of docs/scaling.md does what it says, as far as that is possible here."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.tpu.test_scripts import run
from tpu import plan

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Those of its code blocks and of its tables, each on one line."""
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, flags=re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    in_blocks = [" ".join(shlex.split(part, comments=True)) for part in lines if part.strip()]
    # `&&` joins two commands.
    return [each for line in in_blocks for each in line.split(" && ")]


def of(*starts: str) -> list[str]:
    return [command for command in commands() if command.startswith(starts)]


TPU, SLURM = of("tpu/"), of("slurm/")
PLANS = of("python -m tpu.plan", "python -m tpu.aot")
PLANS += [f"python -m tpu.aot {x}" for x in re.findall(r"`((?:\w+) --topology [^`]+)`", TEXT)]
# Others' tests run these: several processes, and data.
ELSEWHERE = {
    "python train.py tiny": "tests/training/test_processes.py",
    "python train.py base_30m --workdir gs://": "tests/bucket",
    "python sweep.py base_30m --workdir gs://": "tests/bucket",
    "python evaluate.py gs://": "tests/bucket",
    "python report.py gs://": "tests/bucket",
    "PYTHONPATH=.venv-libtpu": "tests/tpu/test_aot.py",
    "python3 -m venv .venv-beam": "tests/data",
    ".venv-beam/bin/pip": "tests/data",
    ".venv-beam/bin/python": "tests/data",
    "python -m data.prepare": "tests/data",
}


def test_every_command_is_run_by_some_test():
    known = (*TPU, *SLURM, *PLANS)
    rest = [c for c in commands() if c not in known and not c.startswith(tuple(ELSEWHERE))]
    assert rest == []
    assert len(TPU) >= 8 and len(SLURM) >= 3 and len(PLANS) >= 2
    assert all((ROOT / where).exists() for where in ELSEWHERE.values())


@pytest.mark.parametrize("command", TPU + SLURM)
def test_scripts(command):
    """By --dry-run; tests/slurm submits SLURM's. Not word for word: tests/tpu/test_scripts.py."""
    script, *words = shlex.split(command)
    at = words.index("--") if "--" in words else len(words)
    words.insert(at, "--dry-run")
    printed = run(script, *words, PYTHON=sys.executable)
    program = {"tpu/apply.sh": "kubectl", "slurm/submit.sh": "sbatch"}.get(script, "gcloud")
    assert re.search(rf"^{program} ", printed, flags=re.M)


@pytest.mark.parametrize("command", PLANS)
def test_plans(command, monkeypatch, capsys):
    """tpu.aot takes what tpu.plan takes, and compiles it: minutes each, by hand."""
    _, _, _, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", ["tpu.plan", *words])
    assert plan.main() in (0, None)
    assert capsys.readouterr().out
