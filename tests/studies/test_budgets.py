"""Budgets: their steps, the decayed copy, and the rule that ends a run."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from experiment import overrides
from experiment.checkpoint import restore_params
from experiment.run import RunDirectory
from studies import budgets
from studies.budgets import Outcome, final_status
from studies.card import Card, Member
from studies.jobs import card_runs
from studies.work import fork
from training.loop import train
from training.optimizer import learning_rate_fraction
from training.plan import make_plan

TINY = change(
    find_config("tiny"),
    model=dict(num_layers=1),
    data=dict(source="retrieval", retrieval_tasks=("kv",)),
    train=dict(schedule="wsd", warmup_steps=2),
)


def card(**changes) -> Card:
    fields: dict[str, Any] = dict(name="a", question="?", shared=TINY, members=(Member(name="b"),))
    return Card(**(fields | changes))


def test_budgets_double_up_to_twice_the_cards_budget():
    tokens = 1000 * 8 * 64
    (run,) = card_runs(card(tokens=tokens), 3)
    assert [config.train.num_steps for config in run.budgets] == [125, 250, 500, 1000, 2000]
    assert [run.tokens(n) for n in range(5)] == [tokens // 8 * 2**n for n in range(5)]
    assert {(config.seed, config.data.seed) for config in run.budgets} == {(3, 3)}
    (short,) = card_runs(card(tokens=tokens, shares=(1 / 4, 1)), 3)
    assert short.budgets == (run.budgets[1], run.budgets[3])
    with pytest.raises(ValueError, match=r"first share of it does not pass train\.warmup_steps=2"):
        card_runs(card(tokens=tokens, shares=(1 / 1000,)), 3)
    (planned,) = card_runs(card(), 0)
    assert planned.budgets == (planned.card.configs()["b"],)


@pytest.mark.parametrize("num_steps", [7, 125, 2000, 12345])
@pytest.mark.parametrize("share", [0.1, 0.2, 1 / 3, 0.5])
def test_the_stable_part_ends_before_the_learning_rate_falls(num_steps, share):
    train = dict(num_steps=num_steps, decay_fraction=share, warmup_steps=0)
    config = change(TINY, train=train)
    stable = budgets.make_stable(config).train
    assert num_steps * (1 - share) - 1 < stable.num_steps <= num_steps * (1 - share)
    for step in (0, stable.num_steps - 1):
        assert learning_rate_fraction(config.train, step) == learning_rate_fraction(stable, step)
    assert learning_rate_fraction(config.train, stable.num_steps + 1) < 1


@pytest.mark.long
def test_a_decayed_copy_equals_the_run_from_scratch(tmp_path, tiny_data):
    """Bit for bit, through two stable parts: `train.py` reproduces each measured run."""
    config = overrides.apply(TINY, [*tiny_data, "train.num_steps=20", "train.save_every=7"])
    scratch = RunDirectory(tmp_path / "scratch")
    assert train(make_plan([config], [scratch]))

    half = change(config, train=dict(num_steps=10))
    stable = [budgets.make_stable(half), budgets.make_stable(config)]
    paths = [RunDirectory(tmp_path / name) for name in ("stable-8", "stable-16", "decayed-20")]
    assert train(make_plan(stable[:1], paths[:1]))
    fork(paths[0], paths[1], stable[1])
    assert train(make_plan(stable[1:], paths[1:2]))
    fork(paths[1], paths[2], config)
    assert train(make_plan([config], paths[2:]))

    assert [path.steps()[-1] for path in paths] == [8, 16, 20]
    (forked, _), (direct, _) = restore_params(paths[2]), restore_params(scratch)
    jax.tree.map(np.testing.assert_array_equal, forked, direct)
    losses = [[row["loss"] for row in run.read_metrics()] for run in (paths[2], scratch)]
    assert losses[0] == losses[1] and len(losses[0]) == 20


LEARNED = Outcome(20.0, 0.6, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "is_converged"),
    [
        (LEARNED, Outcome(21.4, 0.619, 1.0), True),
        (LEARNED, Outcome(21.5, 0.6, 1.0), False),  # more than a tenth of an octave
        (LEARNED, Outcome(18.6, 0.6, 1.0), False),
        (LEARNED, Outcome(20.0, 0.62, 1.0), False),
        (LEARNED, Outcome(20.0, 0.6, 0.89), False),
        (LEARNED, Outcome(math.inf, 0.6, 1.0), False),
        (Outcome(math.inf, 0.6, 1.0), LEARNED, False),
        (Outcome(math.inf, 0.99, 1.0), Outcome(math.inf, 1.0, 1.0), True),
        (Outcome(math.inf, 0.9, 1.0), Outcome(math.inf, 1.0, 1.0), False),
        (Outcome(math.nan, 0.6, 1.0), LEARNED, False),
        (LEARNED, Outcome(math.nan, 0.6, 1.0), False),
        (LEARNED, Outcome(math.nan, math.nan, math.nan), False),
    ],
)
def test_a_run_ends_when_a_doubling_changes_little(before, after, is_converged):
    assert budgets.has_converged(before, after) is is_converged
    assert final_status([before, after], 5) == ("converged" if is_converged else "")
    last = final_status([LEARNED] * 3 + [before, after], 5)
    assert last == ("converged" if is_converged else "not converged")


def test_one_budget_decides_nothing_and_a_card_without_a_budget_ends_as_planned():
    assert final_status([LEARNED], 5) == ""
    assert final_status([LEARNED], 1) == "as planned"
