"""A variant is one file, also of the user's own: it trains, and its run stands without the file."""

import argparse
import contextlib
import json
import py_compile
from pathlib import Path

import numpy as np
import pytest

from ropewalk.experiment import load
from ropewalk.experiment.config import from_dict, to_dict
from ropewalk.model import rotary
from ropewalk.model.rotary.recorded import Recorded
from ropewalk.utils import plugins
from tests.in_process import call, run_command
from tests.models import tiny_config

BENT = '''
"""Frequencies that fall off faster than geometrically."""

import dataclasses

import numpy as np

from ropewalk.model.rotary import Rotary


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
    plugins.allow(path)
    return path


def test_a_config_records_the_frequencies_that_a_file_gave(mine):
    text = f"{mine}:Bent(strength=2.0,rotary_fraction=0.5)"
    config = tiny_config(f"model.rotary=[{text},rope(base=10)]")
    bent, rope = config.model.rotary
    assert isinstance(bent, Recorded)
    expected = np.append(np.exp(-2 * np.arange(4) ** 2 / 8), np.zeros(4))
    np.testing.assert_array_equal(config.model.position_table(64).inv_freq[0, 0], expected)
    assert rotary.label(config.model.rotary).startswith(f"[{mine}:Bent(")
    assert (bent.logit_scale, bent.unrotated_logit_scale) == (1.25, 1.25)
    mine.unlink()
    # Its own text and JSON bring it back without the file.
    assert rotary.parse(rotary.expression(bent)) == bent
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    assert rope == rotary.parse("rope(base=10)")


NAMED = "mine.py:Bent(strength=2)"


class ParsedError(Exception):
    """A command line was parsed, and the command went no further."""


@pytest.mark.parametrize(
    ("command", "is_named"),
    [
        (f"train.py tiny --workdir new model.rotary=[nope,[rope(base=10),./{NAMED}]]", True),
        (f"sweep.py tiny --workdir new model.rotary=rope(base=10),link.py:{NAMED[8:]}", True),
        ("train.py tiny --workdir new evals.tasks=[kv,mine.py:Echo(n=2)]", True),
        ("train.py tiny --own folder/../mine.py --workdir new", True),
        ("train.py tiny --workdir mine.py:Bent start_from=mine.py:Bent", False),
        (f"evaluate.py run --step1 base={NAMED},1e4", True),
        ("evaluate.py run --tasks kv,mine.py:Echo", True),
        ("evaluate.py mine.py:Bent-run mine.py:Bent", False),
        ("evaluate.py run --tasks \"pg19(path='mine.py:Bent')\"", False),
        (f"generate.py run --rotary {NAMED}", True),
        (f"-m probes.viewer mine.py:Bent --text {NAMED}", False),
        ("-m theory length --rotary mine.py:Bent(strength=2)", True),
        (f"-m theory show {NAMED}", True),
        ("-m studies run mine.py:Bent --workdir mine.py:Bent", False),
    ],
)
def test_only_a_file_that_the_command_line_names_is_executed(
    command, is_named, tmp_path, monkeypatch
):
    """A path or a text on the command line permits no code, whatever it is called."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(BENT)
    Path("link.py").symlink_to("mine.py")
    Path("folder").mkdir()
    monkeypatch.setattr(plugins, "_allowed", set())
    for name in ("parse_args", "parse_intermixed_args"):
        parse = getattr(argparse.ArgumentParser, name)

        def parse_only(*arguments, parse=parse):
            parse(*arguments)
            raise ParsedError

        monkeypatch.setattr(argparse.ArgumentParser, name, parse_only)
    with contextlib.suppress(ParsedError):  # `studies` refuses the run
        run_command(command, monkeypatch)
    if is_named:
        assert rotary.parse(f"{tmp_path}/{NAMED}").logit_scale == 1.25
    else:
        with pytest.raises(ValueError, match="code that the command line does not name"):
            rotary.parse(NAMED)


def test_the_source_is_executed_and_not_a_cached_compilation(mine):
    mine.write_text(BENT.replace("1.25", "9.25"))
    py_compile.compile(str(mine), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    mine.write_text(BENT)
    assert rotary.parse(f"{mine}:Bent(strength=2)").logit_scale == 1.25


@pytest.mark.slow
def test_it_trains_resumes_and_is_evaluated_without_the_file(
    mine, tmp_path, tiny_data, monkeypatch
):
    command = ["train.py", "tiny", "--workdir", tmp_path / "run", *tiny_data]
    command += [f"model.rotary={mine}:Bent(strength=2)", "train.num_steps=2"]
    call(*command)
    assert "finished" in call(*command)  # the same command knows its run again
    mine.write_text(BENT.replace("-self.strength", "-3 * self.strength"))
    other = call(*command, status=2)
    assert "model.rotary.values" in other
    mine.unlink()
    monkeypatch.setattr(plugins, "_allowed", set())  # as in a process that was not told of it
    run = load(tmp_path / "run")
    np.testing.assert_array_equal(run.table.inv_freq[0, 0], np.exp(-2 * np.arange(8) ** 2 / 16))
    assert f"{mine}:Bent(strength=2)" in repr(run)
    call("evaluate.py", tmp_path / "run", "--tasks", "perplexity", "--documents", "2")
    (line, *_) = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    assert rotary.parse(json.loads(line)["rotary"]) == run.config.model.rotary
    call("report.py", tmp_path / "run")
    assert "Bent(strength=2)" in (tmp_path / "run" / "report.html").read_text()
