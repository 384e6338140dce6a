"""Imports of only what is used: a bare GPU machine, or Colab, trains; --help needs no JAX."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(f"{{name}} is not there")

sys.meta_path.insert(0, Absent())
"""
HEAVY = {"grain", "array_record", "zstandard", "tensorflow_datasets", "matplotlib"}


def run(script: str, *arguments: object, absent, environment) -> subprocess.CompletedProcess[str]:
    code = BLOCKED.format(names=absent) + script
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "option", "says"),
    [
        ("train.py", "--help", "base_30m"),
        ("train.py", "--help-fields", "train.num_steps=500"),
        ("sweep.py", "--help", "base_30m"),
        ("evaluate.py", "--help", "lagcopy"),
        ("report.py", "--help", "usage: report.py"),
    ],
)
def test_help_needs_no_jax(command, option, says, environment):
    script = f"import runpy; sys.argv = [{command!r}, {option!r}]; runpy.run_path({command!r}, "
    script += "run_name='__main__')"
    absent = HEAVY | {"jax", "flax", "optax", "orbax"}
    done = run(script, absent=absent, environment=environment)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


SLIPS = [
    ["train.py", "tinny", "--workdir", "new"],
    ["train.py", "tiny", "--workdir", "new", "train.num_stps=2"],
    ["train.py", "tiny", "--workdir", "s3://bucket"],
    ["sweep.py", "tiny", "--workdir", "new", "model.rotary.base=10,0"],
    ["sweep.py", "tiny", "--workdir", "s3://bucket", "seed=0,1"],
    ["evaluate.py", "nowhere"],
    ["evaluate.py", ".", "--tasks", "kvv"],
    ["report.py", "nowhere"],
]
REFUSED = """
import runpy
for sys.argv in {slips}:
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        assert stop.code == 2, sys.argv
    else:
        raise AssertionError(sys.argv)
"""


def test_a_slip_of_the_hand_is_refused_without_jax(environment):
    """In a third of a second, not in three."""
    absent = HEAVY | {"jax", "flax", "optax", "orbax", "scipy"}
    done = run(REFUSED.format(slips=SLIPS), absent=absent, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(": error: ") == len(done.stderr.splitlines()) == len(SLIPS)
