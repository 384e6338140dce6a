"""Which documents are asked for next, and that asking for them keeps the estimate honest."""

import numpy as np
import pytest

from ropewalk.evals.estimate import effective_context, sequential
from tests.evals.estimate.simulated import CHANCE, logistic, simulate


def concatenate(parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rounds(*members, documents=32, seed=0):
    """A first round: one run for each curve, all on the same documents."""
    random = np.random.default_rng(seed)
    parts = []
    for number, curve in enumerate(members):
        part = simulate([curve], random, documents=documents)
        part["run"] = np.full(len(part["run"]), f"run{number}")
        parts.append(part)
    return concatenate(parts)


def ask(rows, octaves=0.15, max_documents=1024):
    return sequential.next_round(rows, octaves=octaves, max_documents=max_documents)


def test_a_vague_member_is_asked_within_an_octave_of_its_crossing():
    (target,) = ask(rounds(logistic(40, 3)))
    assert 17 <= target.low <= 23 and 70 <= target.high <= 92
    assert target.high == pytest.approx(4 * target.low, rel=0.1)


def test_members_that_need_nothing_do_not_ask():
    """Not learned; seeing to the end; a sharp edge that is known already."""
    flat, perfect = logistic(40, 3, CHANCE), np.ones_like
    assert ask(rounds(flat, perfect, logistic(40, 60)), octaves=0.5) == []


def test_a_member_that_may_or_may_not_fall_before_the_end_asks_at_the_end():
    rows = rounds(logistic(240, 3), documents=64, seed=1)
    result = effective_context.estimate(rows)
    assert result.ci_high == np.inf and result.octaves > 0.15
    (target,) = ask(rows)
    assert target.low >= 90 and target.high == rows["distance"].max()


def test_documents_are_used_up():
    rows = rounds(logistic(6, 2), logistic(128, 2))
    ranges = ask(rows, max_documents=32 + 10)
    assert sum(target.num_documents for target in ranges) in (9, 10)
    assert ask(rows, max_documents=32) == []


@pytest.mark.long
def test_intervals_of_all_rounds_together_cover():
    """Rounds until .7 octaves: the ceiling, seen by the first round alone, stays right."""
    random = np.random.default_rng(4)
    curve, result = logistic(40, 3, ceiling=0.97), []
    for _ in range(80):
        rows = simulate([curve], random, documents=16, together=np.sqrt(0.2))
        while ranges := ask(rows, octaves=0.7, max_documents=128):
            for target in ranges:
                near = {"shortest": target.low, "longest": target.high, "together": np.sqrt(0.2)}
                near |= {"documents": target.num_documents, "first": rows["document"].max() + 1}
                more = simulate([curve], random, **near)
                rows = concatenate([rows, more])
        result.append(effective_context.estimate(rows, resamples=200))
    covered = [estimate.ci_low <= 40 <= estimate.ci_high for estimate in result]
    assert np.mean(covered) >= 0.90
    assert np.mean([estimate.ceiling for estimate in result]) == pytest.approx(0.97, abs=0.025)
    assert np.median([estimate.octaves for estimate in result]) < 0.72
    assert np.mean([estimate.num_documents for estimate in result]) < 100
