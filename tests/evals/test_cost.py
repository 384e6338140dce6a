"""Evaluations that do not fit are rejected before anything is scored."""

import re

import pytest

from ropewalk import evaluate as cli
from ropewalk.evals import score
from tests.models import write_run
from tests.test_evaluate import CONFIG


@pytest.fixture
def run(tmp_path, tokenizer):
    write_run(tmp_path / "run", CONFIG, tokenizer.model)
    return str(tmp_path / "run")


def test_absurd_numbers_are_rejected_without_jax(run, run_script):
    code = "import sys; sys.modules['jax'] = None; from ropewalk import evaluate; evaluate.main()"
    done = run_script("-c", code, run, "--tasks=kv", "--lengths=1e9", check=False)
    assert done.returncode == 2 and re.fullmatch(".*: error: lengths .*\n", done.stderr)


def test_a_length_that_does_not_fit_is_rejected(run, monkeypatch, capsys):
    """By XLA's analysis of the compiled program, before anything is scored."""
    monkeypatch.setattr(score, "free_device_memory", lambda: 2**24)
    with pytest.raises(SystemExit):
        cli.main([run, "--tasks=kv", "--lengths=131072", "--documents=1"])
    assert re.search(r"length 131072 does not fit: .* try --lengths \d+", capsys.readouterr().err)
