"""Losses on held-out rows, tasks and profiles while a run trains change nothing of the run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.data.pipeline import make_batches, open_data
from ropewalk.evals import runner
from ropewalk.experiment import load, overrides
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import transformer
from ropewalk.training.sweep import train_plan
from ropewalk.training.validation import NUM_BATCHES
from tests.models import make_plan, tiny_config, token_nll, train_run
from tests.training.helpers import NINE, rows_without_times

pytestmark = pytest.mark.slow
EVALUATED = ["train.eval_every=3", "train.log_every=2"]


@pytest.fixture(scope="module")
def tiny(tiny_data):
    """Nine steps, half of whose rows are text and half retrieval documents."""
    changes = [*NINE, "train.save_every=3", "train.keep=9"]
    return tiny_config(*tiny_data, *changes, "data.retrieval_fraction=0.5")


@pytest.fixture(scope="module")
def evaluated(tiny, tmp_path_factory) -> RunDirectory:
    config = overrides.apply(tiny, [*EVALUATED, "train.profile_steps=[2,4]"])
    return train_run(config, tmp_path_factory.mktemp("evaluated") / "run")


def test_the_loss_is_that_of_held_out_rows(tiny, evaluated):
    """Computed again from each checkpoint, over rows that training never reads."""
    data = open_data(tiny.data)
    held_out = list(
        itertools.islice(make_batches(data, start_step=0, split="validation"), NUM_BATCHES)
    )
    trained = make_batches(data, start_step=0)
    trained_rows = {tokens.tobytes() for _ in range(9) for tokens in next(trained)["tokens"]}
    assert not trained_rows & {tokens.tobytes() for batch in held_out for tokens in batch["tokens"]}
    by_step = {row["step"]: row for row in rows_without_times(evaluated)}
    assert [step for step, row in by_step.items() if "val_loss" in row] == [3, 6, 9]
    assert list(by_step) == [2, 3, 4, 6, 8, 9]
    table = tiny.model.position_table(tiny.data.context_length)
    for step in (3, 6, 9):
        params, nats, targets = load(evaluated.path, step=step).params, 0.0, 0.0
        for batch in held_out:
            batch = {name: jnp.asarray(column) for name, column in batch.items()}
            arrays = batch["tokens"], batch["positions"], batch["segment_ids"]
            hidden = transformer.hidden(tiny.model, params, table, *arrays)
            nll = token_nll(tiny.model, params, hidden, batch["targets"])
            nats += float((nll * batch["loss_mask"]).sum())
            targets += float(batch["loss_mask"].sum())
        assert by_step[step]["val_loss"] == pytest.approx(nats / targets, rel=1e-5)


def test_a_run_is_the_same_with_and_without(tiny, evaluated, tmp_path):
    plain = train_run(overrides.apply(tiny, ["train.log_every=1"]), tmp_path / "plain")
    first, second = load(evaluated.path), load(plain.path)
    jax.tree.map(np.testing.assert_array_equal, first.params, second.params)
    rows = {row["step"]: row for row in rows_without_times(plain)}
    for row in rows_without_times(evaluated):
        row.pop("val_loss", None)
        assert row == rows[row["step"]]


@pytest.mark.long
def test_tasks_are_asked_of_every_member(tiny, tmp_path):
    """The values are of evaluate.py's rows at that checkpoint, and none of these are written.

    Of as many documents as the config says, also where evaluate.py by itself asks more.
    """
    changes = [*EVALUATED, "train.eval_tasks=[kv,perplexity]", "train.num_steps=4"]
    configs = [overrides.apply(tiny, [*changes, f"model.rotary.base={base}"]) for base in (10, 1e4)]
    runs = [RunDirectory(tmp_path / name) for name in "ab"]
    assert train_plan(make_plan(configs, runs))
    perplexities = []
    for run in runs:
        assert not run.results_path.exists()
        by_step = {row["step"]: row for row in rows_without_times(run)}
        assert [step for step, row in by_step.items() if "val_kv" in row] == [3, 4]
        options = runner.Options(tasks=["kv", "perplexity"], step=3, documents=8)
        ((_, _, rows),) = runner.evaluate([run.path], options)
        kv, text = rows["task"] == "kv", rows["task"] == "perplexity"
        assert by_step[3]["val_kv"] == pytest.approx(rows["exact_match"][kv].mean())
        nll = np.average(rows["nll"][text], weights=rows["num_tokens"][text])
        assert by_step[3]["val_perplexity"] == pytest.approx(nll)
        perplexities.append(by_step[3]["val_perplexity"])
    assert perplexities[0] != perplexities[1]
