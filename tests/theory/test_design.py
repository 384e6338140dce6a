"""The search finds known optima, within its constraint; the objective is recall by distance."""

import json

import numpy as np
import pytest

from tests.in_process import run_command
from theory.design import design, make_objective

SLOWEST = 0.01


def test_the_search_finds_a_known_optimum_that_no_single_base_reaches():
    """Half of the pairs fast and half slow; a single base spreads them evenly."""
    target_R = np.repeat([1.0, SLOWEST], 8)

    def objective(inv_freq_NR: np.ndarray) -> float:
        return -float(np.abs(np.log(inv_freq_NR / target_R)).mean())

    result = design(2, 32, objective, slowest=SLOWEST)
    assert result.single.accuracy < result.best.accuracy
    assert result.best.accuracy == objective(result.best.inv_freq_NR)
    assert result.best.inv_freq_NR.min() >= SLOWEST * (1 - 1e-9)
    assert (np.diff(result.best.inv_freq_NR) <= 0).all()
    assert (result.best.inv_freq_NR[0] == result.best.inv_freq_NR[1]).all()


def test_heads_differ_where_that_is_better():
    target_N1 = np.array([[0.5], [0.02]])

    def objective(inv_freq_NR: np.ndarray) -> float:
        return -float(np.abs(np.log(inv_freq_NR / target_N1)).mean())

    same, different = (
        design(2, 16, objective, slowest=SLOWEST, per_head=flag).best for flag in (False, True)
    )
    assert different.accuracy > same.accuracy + 0.1


def test_the_single_base_is_that_of_rope():
    """The objective prefers the frequencies of base 10."""
    inv_freq_R = 10.0 ** (-2 * np.arange(16) / 32)
    result = design(
        1,
        32,
        lambda inv_freq_NR: -float(np.abs(np.log(inv_freq_NR / inv_freq_R)).max()),
        slowest=inv_freq_R[-1],
        num_steps=0,
    )
    assert result.base == pytest.approx(10)
    np.testing.assert_allclose(result.single.inv_freq_NR[0], inv_freq_R)


def test_a_sample_of_distances_decides_what_counts():
    """Pairs of half period 4 have opposite phases at 2 and 6 tokens: no head serves both."""
    inv_freq_NR = np.full((1, 8), np.pi / 4)
    near, both = (
        make_objective(32, sample, num_updates=120)(inv_freq_NR) for sample in ([2], [2, 6])
    )
    assert near > 0.8 > both + 0.1
    with pytest.raises(ValueError, match="between 1 and 29"):
        make_objective(32, [40])


def test_the_command(tmp_path, capsys, monkeypatch):
    path = tmp_path / "distances.txt"
    path.write_text("1\n2\n2\n")
    command = "-m theory design --length 16 --head-dim 4 --updates 3"
    options = f"--heads 2 --cycles 2 --json --per-head --distances {path}"
    assert run_command(f"{command} {options}", monkeypatch) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["rotary"].startswith("[[explicit(values=(") and len(result["inv_freq"]) == 2
    assert np.min(result["inv_freq"]) >= 2 * 2 * np.pi / 16 * (1 - 1e-9)
    assert result["mean_accuracy"] >= result["single_base_mean_accuracy"]
    assert run_command(f"{command} --cycles 99", monkeypatch) == 2
    assert "--cycles 99.0 must be at least 0, below 3" in capsys.readouterr().err
