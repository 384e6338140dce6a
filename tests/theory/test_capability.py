"""D_1 and D_H against closed forms, brute force and the dual; forecasts of L50."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from ropewalk.configs import find_config
from ropewalk.experiment.overrides import apply
from ropewalk.model.rotary.rope import Rope
from ropewalk.theory.capability import (
    accuracy,
    bound_l50,
    bound_layers,
    capability,
    query_head_frequencies,
    required_capability,
)


def rope(base: float, head_dim: int = 64, num_heads: int = 1) -> np.ndarray:
    return np.tile(Rope(base=base).inv_freq(head_dim), (num_heads, 1))


@pytest.mark.parametrize("base, head_dim", [(10, 64), (1e4, 64), (30, 16)])
@pytest.mark.parametrize("length", [1, 15, 59, 253])
def test_one_head_is_optimal_by_its_dual(base, head_dim, length):
    result = capability(rope(base, head_dim), length)
    # The least of 253 cosines' sums at base 10 is 1e-6, as near as float64 comes to the dual.
    assert 0 <= result.certificate - result.value < (1e-9 if result.value > 1e-5 else 1e-8)


@pytest.mark.parametrize("length", [1, 2, 10, 31])
def test_one_pair_has_the_closed_form(length):
    """The best phase is at the middle: √2 cos((M - 1) ω / 2), 0 from half the period on."""
    omega = 0.1
    result = capability(np.array([[omega]]), length).value
    assert result == pytest.approx(math.sqrt(2) * math.cos((length - 1) * omega / 2), abs=1e-12)
    assert capability(np.array([[omega]]), 1 + math.ceil(math.pi / omega)).value == 0


@pytest.mark.parametrize("num_unrotated", [1, 2, 8])
def test_unrotated_pairs_bound_every_length_from_below(num_unrotated):
    inv_freq_1R = Rope(base=10, rotary_fraction=1 - num_unrotated / 32).inv_freq(64)[None]
    assert np.count_nonzero(inv_freq_1R == 0) == num_unrotated
    floor = math.sqrt(2 * num_unrotated)
    assert capability(inv_freq_1R, 25).value > floor + 0.1
    assert capability(inv_freq_1R, 2000).value == pytest.approx(floor, abs=1e-6)
    assert capability(np.zeros((1, num_unrotated)), 2000).value == pytest.approx(floor, abs=1e-12)
    # The number of other keys decides whether that is sufficient.
    for num_others in (1, 1000):
        result = bound_l50(inv_freq_1R, num_others=num_others, longest=2000)
        assert result.beyond == (accuracy(floor, num_others) >= 0.5)


def test_accuracy_is_the_distribution_of_the_largest_normal_draw():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 32))
    share = np.mean(scores[:, 1:].max(axis=1) < 2.5)
    assert accuracy(2.5, 31) == pytest.approx(share, abs=0.01)
    assert accuracy(required_capability(31), 31) == pytest.approx(0.5)


def test_heads_share_the_distances_as_well_as_any_partition_does():
    """Compare with all partitions of nine distances among two heads."""
    inv_freq_2R, distances = rope(10, 8, 2), np.arange(1, 10)
    best = 0.0
    for bits in itertools.product((False, True), repeat=8):
        parts = np.array([False, *bits])
        norms = [part_value(inv_freq_2R[0], distances[part]) for part in (parts, ~parts)]
        best = max(best, min(norms))
    result = capability(inv_freq_2R, 9)
    assert result.certificate is None
    assert result.value == pytest.approx(best, abs=1e-7)


def part_value(inv_freq_R: np.ndarray, distances: np.ndarray) -> float:
    """Return √2 min over mixtures p of |E exp(i m ω)|, by a solver for any function."""
    if not len(distances):
        return math.inf
    return math.sqrt(2) * hull_distance(np.exp(1j * np.outer(distances, inv_freq_R)).view(float))


def hull_distance(f_MW: np.ndarray) -> float:
    """Return the distance of 0 from the hull of the rows, by a solver for any function."""
    size, product_MM = len(f_MW), f_MW @ f_MW.T
    sum_is_1 = {"type": "eq", "fun": lambda p_M: p_M.sum() - 1, "jac": np.ones_like}
    least = optimize.minimize(
        lambda p_M: p_M @ product_MM @ p_M, np.full(size, 1 / size),
        jac=lambda p_M: 2 * product_MM @ p_M, method="SLSQP", bounds=[(0, None)] * size,
        constraints=[sum_is_1], options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    return math.sqrt(max(0.0, least.fun))


@pytest.mark.parametrize("num_heads, length", [(2, 25), (4, 25), (3, 59)])
def test_a_partition_attains_its_value_and_has_every_distance_once(num_heads, length):
    result = capability(rope(10, num_heads=num_heads), length)
    assert len(result.partition) == num_heads
    runs = itertools.chain.from_iterable(result.partition)
    covered = [m for first, last in runs for m in range(first, last + 1)]
    assert sorted(covered) == list(range(1, length + 1))
    norms = []
    for part in result.partition:
        distances = np.array([m for first, last in part for m in range(first, last + 1)])
        norms.append(part_value(rope(10)[0], distances))
    assert min(norms) == pytest.approx(result.value, abs=1e-7)


def test_the_layer_of_the_largest_forecast_counts():
    layers = [(rope(base), 300) for base in (10, 30, 10)]
    alone = bound_l50(rope(30), num_others=31, longest=300)
    assert bound_layers(layers, num_others=31) == alone
    assert alone.l50 > bound_l50(rope(10), num_others=31, longest=300).l50


def test_frequencies_of_grouped_heads_and_of_mla():
    """Query heads of one key have its frequencies; MLA's unrotated pairs count as zeros."""
    inv_freq_LKR = np.arange(12.0).reshape(2, 2, 3)
    assert query_head_frequencies(inv_freq_LKR, 4)[:, :, 0].tolist() == [[0, 0, 3, 3], [6, 6, 9, 9]]
    config = apply(find_config("mla_tiny"), ["model.rotary.base=10"]).model
    inv_freq_LNR = query_head_frequencies(config.position_table(64).inv_freq, config.num_heads)
    assert inv_freq_LNR.shape == (config.num_layers, config.num_heads, config.head_dim // 2)
    num_unrotated = (config.head_dim - config.rope_head_dim) // 2
    value = capability(inv_freq_LNR[0, :1], 2000).value
    assert value == pytest.approx(math.sqrt(2 * num_unrotated), abs=1e-6)
