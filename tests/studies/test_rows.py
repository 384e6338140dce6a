"""Rows of a study are read as written; damaged or foreign rows are refused."""

import dataclasses
import json
import lzma
import math

import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.evals import rows as answer_rows
from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.evals.estimate.effective_context import estimate, estimate_trials
from ropewalk.evals.estimate.trials import Trials
from ropewalk.studies import rows
from ropewalk.studies.rows import Answers, Counts, Losses, Row

CONFIG = find_config("tiny")


def make_results(documents: int = 5, questions: int = 12) -> answer_rows.Rows:
    """Make result rows at distances 1 ... 200."""
    random = np.random.default_rng(1)
    number = documents * questions
    columns = {
        "task": "kv", "split": "validation", "run": "r", "step": 1, "seed": 0, "rotary": "rope",
        "base": 10.0, "trained_length": 256, "length": 256, "num_tokens": 1, "rank": 0,
        "first_token_correct": True, "num_bytes": 0, "num_words": 0, "chance": 1 / 64,
        "query": 0, "run_id": "",
    }  # fmt: skip
    columns["document"] = np.repeat(np.arange(documents), questions)
    columns["distance"] = random.integers(1, 200, size=number)
    columns["exact_match"] = random.random(number) < np.where(columns["distance"] < 60, 0.99, 0.1)
    columns["nll"] = random.random(number)
    return {name: np.broadcast_to(columns[name], number) for name in answer_rows.SCHEMA}


def row(**changes) -> Row:
    results = make_results()
    answers = (
        Answers(measurement="whole", task="kv", length=256, value=0.5,
                counts=Counts.from_rows(results)),
        Answers(measurement="whole", task="perplexity", length=256, value=3.25,
                losses=Losses.from_rows(results)),
    )  # fmt: skip
    fields = dict(
        card="card", member="base=10", seed=2, tokens=4096, final="", config=CONFIG,
        answers=answers, made_by={"jax": "0.10"}, core_seconds=12.5,
        numbers={"losses": {"loss": 1.5, "val_loss": math.nan}, "l50": math.inf},
    )  # fmt: skip
    return Row(**(fields | changes))


def test_a_row_is_read_as_it_was_written(tmp_path):
    rows.append(tmp_path, [row(seed=3), row()])
    rows.append(tmp_path, [row(final="as planned")])  # in place of the row of the same run
    path = tmp_path / "card.jsonl.xz"
    read, other = rows.read(path)
    assert (read.seed, read.final, other.seed) == (2, "as planned", 3)
    assert read.numbers == {"losses": {"loss": 1.5, "val_loss": "nan"}, "l50": "inf"}
    assert read.config == CONFIG and read.made_by == {"jax": "0.10"}
    for ours, theirs in zip(read.answers, row().answers, strict=True):
        for part in ("counts", "losses"):
            values, expected = getattr(ours, part), getattr(theirs, part)
            assert (values is None) == (expected is None)
            for name, value in (expected._asdict() if expected else {}).items():
                np.testing.assert_array_equal(getattr(values, name), value)
    before = path.read_bytes()
    rows.append(tmp_path, [other])
    assert path.read_bytes() == before


def test_files_that_were_concatenated_keep_all_rows(tmp_path):
    for number in (1, 2):
        rows.append(tmp_path / f"{number}", [row(seed=number)])
    path = tmp_path / "card.jsonl.xz"
    path.write_bytes(b"".join((tmp_path / n / path.name).read_bytes() for n in "12"))
    rows.append(tmp_path, [row(seed=3)])
    assert [other.seed for other in rows.read(path)] == [1, 2, 3]


def test_losses_are_those_of_the_answers():
    results = make_results(documents=9, questions=40)
    losses, by_bin = Losses.from_rows(results), fine_bin_number(results["distance"])
    assert losses.tokens.sum() == 360
    assert losses.nll.sum() == pytest.approx(results["nll"].sum(), abs=1e-2)
    both = (results["document"] == 4) & (by_bin == losses.fine[-1])
    assert losses.nll[4, -1] == pytest.approx(results["nll"][both].sum(), abs=1e-4)


def test_the_estimate_from_counts_is_that_from_answers():
    results = make_results(documents=30, questions=40)
    counts = Counts.from_rows(results)
    trials = Trials.from_counts(
        counts.columns(seed=0), distances=(counts.shortest, counts.longest), chance=counts.chance
    )
    ours = dataclasses.asdict(estimate_trials(trials, task="kv", lengths=(256, 256)))
    assert repr(ours) == repr(dataclasses.asdict(estimate(results)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: lzma.compress(json.dumps({"version": 1}).encode()),
    ],
)
def test_damaged_rows_are_one_line_that_names_the_file(tmp_path, damage):
    rows.append(tmp_path, [row()])
    path = tmp_path / "card.jsonl.xz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="restore it, or delete it") as refused:
        rows.read_all(tmp_path)
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)


def test_rows_of_another_config_are_refused():
    rows.check(row(), CONFIG)
    rows.check(row(config=change(CONFIG, train=dict(save_every=3), question="!")), CONFIG)
    with pytest.raises(ValueError, match=r"has model\.num_layers=3, and the card now has model"):
        rows.check(row(config=change(CONFIG, model=dict(num_layers=3))), CONFIG)


def test_rows_name_no_folders_of_a_machine_and_fit_those_of_another():
    here = change(CONFIG, start_from="/here/runs/parent@5", data=dict(path="/here/text"))
    there = change(CONFIG, start_from="/there/parent@5", data=dict(path="/there/corpus"))
    stored = rows.without_folders(here)
    assert (stored.start_from, stored.data.path) == ("parent@5", "text")
    rows.check(row(config=stored), there)
    rows.check(row(config=stored), change(there, start_from=None))
    with pytest.raises(ValueError, match="start_from=parent@5, and the card now has start_from"):
        rows.check(row(config=stored), change(there, start_from="/there/parent@7"))


def test_all_committed_rows_are_read(committed):
    """The lines of six files, counted by `xzcat | wc -l`; the answers by jq."""
    assert len(committed) == 79 + 75 + 180 + 6 + 18 + 18
    assert sum(bool(row.final) for row in committed) == 87
    counts = [answers.counts for row in committed for answers in row.answers]
    assert sum(item.right.sum() for item in counts if item) == 1_712_773
