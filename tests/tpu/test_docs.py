"""Every command of docs/scaling.md does what it says, as far as that is possible here."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from studies import __main__ as studies
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
PLANS = [command for command in commands() if " -m tpu." in command]
PLANS += [f"python -m tpu.aot {x}" for x in re.findall(r"`((?:\w+) --topology [^`]+)`", TEXT)]
# These are run where their kind is tested, as they stand.
PROCESSES = of("python train.py tiny")  # tests/training/test_processes.py
BUCKET = [command for command in commands() if "gs://" in command]  # tests/bucket/test_bucket.py
BEAM = of("python3 -m venv", ".venv-beam/")  # tests/data/test_redpajama_beam.py, with the next
PREPARE = of("python -m data.prepare")
# In sentences: a study's parts, and a report of rows that lie elsewhere.
STUDIES = re.findall(r"`python -m (studies \w+ STUDY[^`]*)`", TEXT.replace("\n", " "))


def test_every_command_is_run_by_some_test():
    known = (TPU, SLURM, PLANS, PROCESSES, BUCKET, BEAM, PREPARE)
    assert [command for command in commands() if not any(command in each for each in known)] == []
    assert all(len(each) > 1 for each in (*known, STUDIES))


def test_make_installs_beam_as_written():
    """Which takes a minute: once, for `make test-bucket`."""
    given = ("make", "-n", "-B", "VENV=.venv", "PYTHON=python3", ".venv-beam/.installed")
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=True)
    quiet = ("-qq", "--disable-pip-version-check")
    made = [
        " ".join(word for word in shlex.split(line) if word not in quiet)
        for line in done.stdout.splitlines()
    ]
    assert len(BEAM) == 3 and set(BEAM[:2]) < set(made)


@pytest.mark.parametrize("command", STUDIES)
def test_parts_and_reports_of_a_study(command, monkeypatch, capsys, tmp_path):
    _, *words = shlex.split(command.replace("STUDY", "capability").replace("DIR", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["studies", *words])
    assert studies.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) > 10 if words[0] == "parts" else Path(said[-1]).exists()


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
    words = shlex.split(command.partition(" -m tpu.")[2])[1:]
    monkeypatch.setattr(sys, "argv", ["tpu.plan", *words])
    assert plan.main() in (0, None)
    assert capsys.readouterr().out
