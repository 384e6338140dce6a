import json
import subprocess
import sys
from pathlib import Path

import pytest

from theory.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def theory(monkeypatch, capsys):
    """Runs the command line in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["theory", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_the_module_prints_the_number_alone():
    command = [sys.executable, "-m", "theory", "length", "--base", "10000", "--head-dim", "128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1707\n", "")


def test_json_is_one_object(theory):
    code, out, err = theory("length", "--base", "1e4", "--head-dim", "64", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "rotary": "rope(base=10000)",
        "head_dim": 64,
        "first_violation": 725,
        "checked_up_to": 725,
    }


def test_any_schedule_by_its_expression(theory):
    """Interpolation by 4 makes every distance a quarter of itself: 4 * 724 < m <= 4 * 725."""
    expression = "position_interpolation(base=1e4,factor=4)"
    code, out, _ = theory("length", "--rotary", expression, "--head-dim", "64")
    assert code == 0
    assert 4 * 724 < int(out) <= 4 * 725


def test_no_violation_is_said_as_a_bound(theory):
    assert theory("length", "--rotary", "nope", "--head-dim", "64")[1] == "> 1048575\n"
    out = theory("length", "--base", "1e4", "--head-dim", "64", "--limit", "725", "--json")[1]
    assert json.loads(out)["first_violation"] is None
    assert json.loads(out)["checked_up_to"] == 724


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--base", "0.5", "--head-dim", "64"], "base must be a finite number above 1, got 0.5"),
        (["--base", "nan", "--head-dim", "64"], "base must be a finite number above 1, got nan"),
        (["--base", "10", "--head-dim", "63"], "head_dim must be even and positive, got 63"),
        (["--base", "10", "--head-dim", "64", "--limit", "0"], "--limit must be at least 1 token"),
        (["--rotary", "yarm", "--head-dim", "64"], "unknown rotary schedule 'yarm'"),
        (["--head-dim", "64"], "one of the arguments --base --rotary is required"),
    ],
)
def test_mistakes_exit_2_with_one_line(theory, arguments, reason):
    code, out, err = theory("length", *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert reason in err
