"""Rows of a study are read as written; damaged or foreign rows are refused."""

import dataclasses
import gzip
import json
import math
from typing import Any

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from evals import rows as answer_rows
from evals.estimate.bins import fine_bin_number
from studies import rows
from studies.rows import Answers, Counts, Row

CONFIG = find_config("tiny")


def make_results(seed: int = 1, documents: int = 5, questions: int = 12) -> answer_rows.Rows:
    """Make result rows of one seed at distances 1 ... 200."""
    random = np.random.default_rng(seed)
    number = documents * questions
    columns: dict[str, Any] = {
        "task": "kv", "split": "validation", "run": "r", "step": 1, "seed": 0, "rotary": "rope",
        "base": 10.0, "trained_length": 256, "length": 256, "num_tokens": 1, "nll": 0.0, "rank": 0,
        "first_token_correct": True, "num_bytes": 0, "num_words": 0, "chance": 1 / 64,
        "query": 0, "run_id": "",
    }  # fmt: skip
    columns["document"] = np.repeat(np.arange(documents), questions)
    columns["distance"] = random.integers(1, 200, size=number)
    columns["exact_match"] = random.random(number) < np.where(columns["distance"] < 60, 0.99, 0.1)
    return {name: np.broadcast_to(columns[name], number) for name in answer_rows.SCHEMA}


def row(**changes) -> Row:
    counts = Counts.from_rows(make_results())
    answers = (
        Answers(measurement="whole", task="kv", length=256, value=0.5, counts=counts),
        Answers(measurement="whole", task="perplexity", length=256, value=3.25, counts=None),
    )
    fields: dict[str, Any] = dict(
        card="card", member="base=10", seed=2, tokens=4096, final="", config=CONFIG,
        answers=answers, l50=math.inf, mean_accuracy=0.5, ceiling=1.0,
        losses={"loss": 1.5, "val_loss": math.nan}, made_by={"estimator": 2}, core_seconds=12.5,
    )  # fmt: skip
    return Row(**(fields | changes))


def test_a_row_is_read_as_it_was_written(tmp_path):
    written = row()
    path = rows.write(tmp_path, written)
    assert path.relative_to(tmp_path).as_posix() == "card/base=10,seed=2.4096.json.gz"
    read = rows.read(path)
    for field in dataclasses.fields(Row):
        if field.name not in ("answers", "losses"):
            assert getattr(read, field.name) == getattr(written, field.name), field.name
    assert read.losses["loss"] == 1.5 and math.isnan(read.losses["val_loss"])
    assert read.answers[1] == written.answers[1]
    before, after = written.answers[0].counts, read.answers[0].counts
    assert before and after
    for name, values in before._asdict().items():
        np.testing.assert_allclose(getattr(after, name), values, atol=1e-4)
    assert path.read_bytes() == rows.write(tmp_path, read).read_bytes()
    # A killed writer leaves a partial file, which is not a row.
    path.with_name(f"{path.name}.0123abcd.part").write_bytes(b"half")
    assert [item.name for item in rows.read_all(tmp_path)] == [written.name]


def test_counts_are_those_of_the_answers():
    results = make_results(documents=9, questions=40)
    columns = Counts.from_rows(results).columns(seed=3)
    assert set(columns["seed"]) == {3}
    assert (
        columns["questions"].sum() == 360 and columns["right"].sum() == results["exact_match"].sum()
    )
    by_bin = fine_bin_number(results["distance"])
    for document, fine, count, right in zip(*list(columns.values())[1:], strict=True):
        same = (results["document"] == document) & (by_bin == fine)
        assert (count, right) == (same.sum(), results["exact_match"][same].sum())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: b"",
        lambda content: gzip.compress(b"{"),
        lambda content: gzip.compress(b"[]"),
        lambda content: gzip.compress(json.dumps({"version": 1}).encode()),
    ],
)
def test_a_damaged_row_is_one_line_that_names_it(tmp_path, damage):
    path = rows.write(tmp_path, row())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="delete it, and `run` measures it anew") as refused:
        rows.read(path)
    assert str(refused.value).startswith(str(path)) and "\n" not in str(refused.value)


def test_rows_of_another_config_or_estimator_are_refused():
    rows.check(row(), "card", CONFIG, 2)
    # Fields of saving and logging do not matter.
    rows.check(
        row(config=change(CONFIG, train=dict(save_every=3), question="!")), "card", CONFIG, 2
    )
    with pytest.raises(ValueError, match=r"model\.num_layers=3, and card card now has model\.num_"):
        rows.check(row(config=change(CONFIG, model=dict(num_layers=3))), "card", CONFIG, 2)
    with pytest.raises(ValueError, match="has estimator 2, and the current estimator is 3"):
        rows.check(row(), "card", CONFIG, 3)
