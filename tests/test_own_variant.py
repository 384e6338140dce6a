"""A variant is one file, also of the user's own: it trains, and its run stands without the file."""

import json
import sys

import numpy as np
import pytest

import evals
from configs import find_config
from experiment import load, overrides
from experiment.config import from_dict, to_dict
from model import rotary
from model.rotary.recorded import Recorded
from settings import folders

BENT = '''
"""Frequencies that fall off faster than geometrically."""

import dataclasses

import numpy as np

from model.rotary import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bent(Rotary):
    """Pair i rotates exp(-strength i^2 / rotary_dim) radians per token."""

    strength: float

    def frequencies(self, rotary_dim):
        return np.exp(-self.strength * np.arange(rotary_dim // 2) ** 2 / rotary_dim)

    @property
    def logit_scale(self):
        return 1.25
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BENT)
    folders.allow(path)
    return path


def test_a_config_records_the_frequencies_that_a_file_gave(mine):
    text = f"{mine}:Bent(strength=2.0,rotary_fraction=0.5)"
    config = overrides.apply(find_config("tiny"), [f"model.rotary=[{text},rope(base=10)]"])
    bent, rope = config.model.rotary
    assert isinstance(bent, Recorded)
    expected = np.append(np.exp(-2 * np.arange(4) ** 2 / 8), np.zeros(4))
    np.testing.assert_array_equal(config.model.rotary_table(64).inv_freq[0, 0], expected)
    assert rotary.label(config.model.rotary).startswith(f"[{mine}:Bent(")
    assert (bent.logit_scale, bent.unrotated_logit_scale) == (1.25, 1.25)
    mine.unlink()
    # Its own text and JSON bring it back without the file.
    assert rotary.parse(rotary.expression(bent)) == bent
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    assert rope == rotary.parse("rope(base=10)")


def test_what_came_with_a_run_runs_no_file(mine, monkeypatch):
    """A result row or a stage is read wherever the run is: a file it names is not run."""
    other = mine.with_name("other.py")
    other.write_text(BENT)
    for parse, text in (
        (rotary.parse_pattern, f"[{other}:Bent(strength=2)]"),
        (evals.parse, f"{other}:Bent(strength=2)"),
    ):
        with pytest.raises(ValueError, match="code that nobody asked for here"):
            parse(text)
    # Who types it asks for it.
    monkeypatch.setattr(sys, "argv", ["train.py", f"model.rotary={other}:Bent(strength=2)"])
    assert rotary.parse_pattern(f"{other}:Bent(strength=2)").logit_scale == 1.25
    staged = overrides.apply(
        find_config("tiny"), [f"stages=[[model.rotary={mine}:Bent(strength=2)]]"]
    )
    from experiment import stages

    with pytest.raises(ValueError, match="a stage takes nothing from a file of your own"):
        stages.split(staged)


@pytest.mark.slow
def test_it_trains_resumes_and_is_evaluated_without_the_file(mine, tmp_path, run_script, tiny_data):
    command = ["train.py", "tiny", "--workdir", tmp_path / "run", *tiny_data]
    command += [f"model.rotary={mine}:Bent(strength=2)", "train.num_steps=2"]
    run_script(*command)
    assert "finished" in run_script(*command).stderr  # the same command knows its run again
    mine.write_text(BENT.replace("-self.strength", "-3 * self.strength"))
    other = run_script(*command, check=False)
    assert other.returncode == 2 and "model.rotary.values" in other.stderr
    mine.unlink()
    run = load(tmp_path / "run")
    np.testing.assert_array_equal(run.table.inv_freq[0, 0], np.exp(-2 * np.arange(8) ** 2 / 16))
    assert f"{mine}:Bent(strength=2)" in repr(run)
    run_script("evaluate.py", tmp_path / "run", "--tasks", "perplexity", "--documents", "2")
    (line, *_) = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    assert rotary.parse(json.loads(line)["rotary"]) == run.config.model.rotary
    run_script("report.py", tmp_path / "run")
    assert "Bent(strength=2)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_checkpoint_is_evaluated_with_a_file(mine, tmp_path, run_script, tiny_data):
    run_script("train.py", "tiny", "--workdir", tmp_path / "run", *tiny_data, "train.num_steps=2")
    bent = f"{mine}:Bent(strength=2)"
    arguments = ("--tasks", "perplexity", "--documents", "2", "--rotary", bent)
    run_script("evaluate.py", tmp_path / "run", *arguments)
    mine.unlink()
    run_script("report.py", tmp_path / "run")
    assert "Bent(strength=2" in (tmp_path / "run" / "report.html").read_text()
