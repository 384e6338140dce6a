"""Thresholds and edges of tables made by hand."""

import numpy as np
import pytest

from ropewalk.evals.estimate import thresholds


def table(accuracy, lengths, *, trials=20, distances=None):
    """Rows of `trials` answers at each (length, distance) of which accuracy(distance) are right."""
    parts = []
    for length in lengths:
        for distance in distances or range(1, length + 1):
            right = np.arange(trials) < round(trials * accuracy(distance))
            parts.append((length, distance, right))
    zeros = np.zeros(trials * len(parts), int)
    return {
        "task": np.full(trials * len(parts), "passkey"),
        **dict.fromkeys(("seed", "document", "chance"), zeros),
        "length": np.repeat([length for length, _, _ in parts], trials),
        "distance": np.repeat([distance for _, distance, _ in parts], trials),
        "exact_match": np.concatenate([right for _, _, right in parts]),
    }


def by_length(*accuracies):
    """One distance a length, which are 64, 128, 256, ..."""
    lengths = (64 << i for i in range(len(accuracies)))
    return concatenate(
        table(lambda _, share=share: share, [length], distances=[10])
        for length, share in zip(lengths, accuracies, strict=False)
    )


def concatenate(tables):
    tables = [*tables]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def test_a_step_at_m_has_an_effective_length_of_m_over_085():
    """A model that sees 64 tokens: 64 / .85 = 75.3."""
    result = thresholds.effective_length(table(lambda m: m <= 64, range(60, 140)))
    assert result.value == 75
    assert result.accuracy[result.lengths.index(100)] == pytest.approx(0.64)


def test_the_threshold_is_085_of_the_shortest_length():
    """.8 at the shortest: the threshold is .68."""
    rows = by_length(0.8, 0.75, 0.7, 0.65, 0.1)
    result = thresholds.effective_length(rows)
    assert result.accuracy == pytest.approx((0.8, 0.75, 0.7, 0.65, 0.1))
    assert (result.value, str(result)) == (256, "256")
    assert str(thresholds.effective_length(by_length(0.6, 0.55))) == ">= 128"


def test_a_relative_threshold_needs_a_score_to_begin_with():
    """Otherwise .04 at every length would be effective at all of them."""
    result = thresholds.effective_length(by_length(0.05, 0.05))
    assert (result.value, str(result)) == (None, "< 64")


def test_the_visual_edge_of_a_step_is_the_step():
    """Bins begin at 64 and 91: the step at 90 fills its bin; shorter lengths are all green."""
    rows = table(lambda m: m <= 90, [32, 128, 256, 512])
    assert thresholds.visual_edge(table(lambda m: m <= 90, [256])) == 90
    assert thresholds.visual_edge(rows) == 90  # median of 32, 90, 90, 90
    assert thresholds.visual_edge(table(lambda m: m <= 90, [32, 48])) == 40


def test_nothing_green_is_an_edge_of_zero_and_luck_is_not_green():
    rows = table(lambda m: 0.4, [64], trials=10)
    assert thresholds.visual_edge(rows) == 0
    lucky = table(lambda m: 1, [64], trials=1, distances=[50])
    assert thresholds.visual_edge(concatenate([rows, lucky])) == 0
    alone = table(lambda m: 1, [256], trials=3, distances=[200])
    assert thresholds.visual_edge(alone) == 0
