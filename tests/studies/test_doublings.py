"""Doublings: their steps, the copy that decays, and the rule that ends a run."""

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
from studies import doublings
from studies.card import Card, Member
from studies.doublings import Reached, ended
from studies.piece import fork, runs_of
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
    given: dict[str, Any] = dict(name="a", question="?", shared=TINY, members=(Member(name="b"),))
    return Card(**(given | changes))


def test_a_budget_is_reached_in_doublings_and_passed_once():
    tokens = 1000 * 8 * 64
    (run,) = runs_of(card(tokens=tokens), [3])
    assert [config.train.num_steps for config in run.levels] == [125, 250, 500, 1000, 2000]
    assert [run.tokens(n) for n in range(5)] == [tokens // 8 * 2**n for n in range(5)]
    assert {(config.seed, config.data.seed) for config in run.levels} == {(3, 3)}
    (planned,) = runs_of(card(), [0])
    assert planned.levels == (planned.card.configs()["b"],)


@pytest.mark.parametrize("num_steps", [7, 125, 2000, 12345])
@pytest.mark.parametrize("share", [0.1, 0.2, 1 / 3, 0.5])
def test_the_trunk_ends_before_the_learning_rate_falls(num_steps, share):
    train = dict(num_steps=num_steps, decay_fraction=share, warmup_steps=0)
    config = change(TINY, train=train)
    trunk = doublings.trunk(config).train
    assert num_steps * (1 - share) - 1 < trunk.num_steps <= num_steps * (1 - share)
    for step in (0, trunk.num_steps - 1):
        assert learning_rate_fraction(config.train, step) == learning_rate_fraction(trunk, step)
    assert learning_rate_fraction(config.train, trunk.num_steps + 1) < 1


@pytest.mark.slow
def test_a_copy_that_decays_ends_as_the_run_from_scratch(tmp_path, tiny_data):
    """Bit for bit, through two trunks: what is measured is a run that anybody can make."""
    config = overrides.apply(TINY, [*tiny_data, "train.num_steps=20", "train.save_every=7"])
    scratch = RunDirectory(tmp_path / "scratch")
    assert train(make_plan([config], [scratch]))

    half = change(config, train=dict(num_steps=10))
    trunks = [doublings.trunk(half), doublings.trunk(config)]
    paths = [RunDirectory(tmp_path / name) for name in ("trunk-8", "trunk-16", "whole-20")]
    assert train(make_plan(trunks[:1], paths[:1]))
    fork(paths[0], paths[1], trunks[1])
    assert train(make_plan(trunks[1:], paths[1:2]))
    fork(paths[1], paths[2], config)
    assert train(make_plan([config], paths[2:]))

    assert [path.steps()[-1] for path in paths] == [8, 16, 20]
    (ours, _), (theirs, _) = restore_params(paths[2]), restore_params(scratch)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    losses = [[row["loss"] for row in run.read_metrics()] for run in (paths[2], scratch)]
    assert losses[0] == losses[1] and len(losses[0]) == 20


LEARNED = Reached(20.0, 0.6, 1.0)


@pytest.mark.parametrize(
    ("before", "now", "is_still"),
    [
        (LEARNED, Reached(21.4, 0.619, 1.0), True),
        (LEARNED, Reached(21.5, 0.6, 1.0), False),  # more than a tenth of an octave
        (LEARNED, Reached(18.6, 0.6, 1.0), False),
        (LEARNED, Reached(20.0, 0.62, 1.0), False),
        (LEARNED, Reached(20.0, 0.6, 0.89), False),
        (LEARNED, Reached(math.inf, 0.6, 1.0), False),
        (Reached(math.inf, 0.6, 1.0), LEARNED, False),
        (Reached(math.inf, 0.99, 1.0), Reached(math.inf, 1.0, 1.0), True),
        (Reached(math.inf, 0.9, 1.0), Reached(math.inf, 1.0, 1.0), False),
        (Reached(math.nan, 0.6, 1.0), LEARNED, False),
        (LEARNED, Reached(math.nan, 0.6, 1.0), False),
        (LEARNED, Reached(math.nan, math.nan, math.nan), False),
    ],
)
def test_a_run_ends_when_a_doubling_moves_little(before, now, is_still):
    assert doublings.has_converged(before, now) is is_still
    assert ended([before, now], 5) == ("converged" if is_still else "")
    at_the_end = ended([LEARNED] * 3 + [before, now], 5)
    assert at_the_end == ("converged" if is_still else "not converged")


def test_one_doubling_says_nothing_and_a_card_without_a_budget_ends_as_planned():
    assert ended([LEARNED], 5) == ""
    assert ended([LEARNED], 1) == "as planned"


def test_fork_leaves_a_target_alone_and_needs_a_checkpoint(tmp_path):
    target = RunDirectory(tmp_path / "there")
    target.path.mkdir()
    (target.path / "config.json").write_text("{}")  # written last: what has none is not there
    fork(RunDirectory(tmp_path / "none"), target, TINY)
    assert [path.read_text() for path in target.path.iterdir()] == ["{}"]
    with pytest.raises(ValueError, match="no checkpoint"):
        fork(RunDirectory(tmp_path / "none"), RunDirectory(tmp_path / "new"), TINY)
    assert not (tmp_path / "new").exists()
