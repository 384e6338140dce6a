"""Every command of docs/scaling.md runs, or its dry run does."""

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
    """Return the commands of code blocks, each on one line."""
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, flags=re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    in_blocks = [" ".join(shlex.split(part, comments=True)) for part in lines if part.strip()]
    # `&&` joins two commands.
    return [command for line in in_blocks for command in line.split(" && ")]


def starting_with(*starts: str) -> list[str]:
    return [command for command in commands() if command.startswith(starts)]


TPU, SLURM = starting_with("tpu/"), starting_with("slurm/")
PLANS = [command for command in commands() if " -m tpu." in command]
PLANS += [f"python -m tpu.aot {x}" for x in re.findall(r"`((?:\w+) --topology [^`]+)`", TEXT)]
# Other tests run these commands unchanged.
PROCESSES = starting_with("python train.py tiny")  # tests/training/test_processes.py
BUCKET = [command for command in commands() if "gs://" in command]  # tests/bucket/test_bucket.py
BEAM = starting_with(
    "python3 -m venv", ".venv-beam/"
)  # tests/data/test_redpajama_beam.py, with the next
PREPARE = starting_with("python -m data.prepare")


def test_every_command_is_run_by_some_test():
    known = (TPU, SLURM, PLANS, PROCESSES, BUCKET, BEAM, PREPARE)
    assert [command for command in commands() if not any(command in group for group in known)] == []
    assert all(len(group) > 1 for group in known)


@pytest.mark.parametrize("command", TPU + SLURM)
def test_scripts(command):
    """Run with --dry-run; test_scripts.py checks the exact output, tests/slurm submits jobs."""
    script, *arguments = shlex.split(command)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    arguments.insert(end, "--dry-run")
    if script == "slurm/submit.sh":
        # Data is checked before submission, and RedPajama is not here.
        arguments += ["data.source=local", "data.path=None"]
    printed = run(script, *arguments, PYTHON=sys.executable)
    program = {"tpu/apply.sh": "kubectl", "slurm/submit.sh": "sbatch"}.get(script, "gcloud")
    assert re.search(rf"^{program} ", printed, flags=re.M)


@pytest.mark.parametrize("command", PLANS)
def test_plans(command, monkeypatch, capsys):
    """tpu.plan has the arguments of tpu.aot, which takes minutes per command."""
    arguments = shlex.split(command.partition(" -m tpu.")[2])[1:]
    monkeypatch.setattr(sys, "argv", ["tpu.plan", *arguments])
    assert plan.main() in (0, None)
    assert capsys.readouterr().out
