"""Pairs taken out or frozen: what is left is known from the model's own queries and tables."""

import dataclasses
import functools

import numpy as np
import pytest

from evals.score import Candidate
from model.positions import freeze_pairs, position_table
from model.transformer import without_pairs
from probes import Subject, capture
from probes.asked.band_ablation import band_ablation, still
from probes.changed import Effects
from probes.probe import complex_pairs
from tests.probes.helpers import copier
from tests.probes.test_inside import MODELS, loaded, rows

pytestmark = pytest.mark.usefixtures("unoptimized")


def some_pairs(run, *, alike: bool) -> np.ndarray:
    """Half of the pairs of each head, others in each."""
    model = run.config.model
    shape = model.num_layers, 1 if alike else model.num_heads, model.head_dim // 2
    pairs_LNR = np.random.default_rng(3).random(shape) < 0.5
    return np.broadcast_to(pairs_LNR, (shape[0], model.num_heads, shape[2]))


@pytest.mark.parametrize("name", ["grouped", "norm", "mla, query latent"])
def test_a_pair_that_is_out_is_0_in_the_query_and_the_others_stay(name):
    run = loaded(*MODELS[name])
    pairs_LNR = some_pairs(run, alike=run.config.model.qk_norm)
    less = dataclasses.replace(run, params=without_pairs(run.config.model, run.params, pairs_LNR))
    (q_BTNR, k_BSKR), (before_BTNR, before_BSKR) = (
        (complex_pairs(np.asarray(each[0])) for each in capture(of, **rows(run)).inside[:2])
        for of in (less, run)
    )
    assert np.abs(before_BTNR).min() > 0
    np.testing.assert_allclose(q_BTNR, np.where(pairs_LNR[0], 0, before_BTNR), atol=1e-6)
    np.testing.assert_array_equal(k_BSKR, before_BSKR)


def test_frozen_pairs_are_those_of_a_variant_that_has_them_unrotated():
    """p-RoPE is RoPE whose slow pairs do not rotate."""
    full, half = (
        loaded({}, text).config.model
        for text in ("rope(base=30)", "p_rope(base=30,rotary_fraction=0.5)")
    )
    is_slow_R = np.arange(full.head_dim // 2) >= full.head_dim // 4
    table = freeze_pairs(
        position_table(full, 40), np.broadcast_to(is_slow_R, (2, 1, len(is_slow_R)))
    )
    for own, expected in zip(table, position_table(half, 40), strict=True):
        np.testing.assert_array_equal(own, expected)


def test_heads_that_share_a_key_are_frozen_together():
    rope, slow = "rope(base=30)", "p_rope(base=30,rotary_fraction=0.5)"
    full, half = (
        loaded(dict(num_heads=4, num_kv_heads=2), text).config.model
        for text in (rope, f"[[{rope},{slow}]]")
    )
    R = full.head_dim // 2
    pairs_LNR = np.zeros((2, 4, R), bool)
    pairs_LNR[:, 2:, R // 2 :] = True
    found = still(full, Candidate({}, functools.partial(position_table, full, 64)), pairs_LNR)
    for own, expected in zip(found.table_for(40), position_table(half, 64, 40), strict=True):
        np.testing.assert_array_equal(*np.broadcast_arrays(own, expected))


def test_freezing_unrotated_pairs_changes_nothing(tokenizer_file):
    """Bit for bit; the copying head has a pair for each key, half of which do not rotate."""
    rotary = "p_rope(base=30,rotary_fraction=0.5)"
    subject = Subject(run=copier(tokenizer_file, rotary=rotary))
    found = band_ablation(subject, draws=1)
    assert np.isinf(found.start_G[-1]) and found.pairs_G[-1] == 32
    assert (found.l50_3WG[:, 1, -1] == found.own_l50_3).all()
    assert (found.loss_3WG[:, 1, -1] == found.own_loss_3).all()
    # Zeroing them does; and without any rotation that head is always right.
    assert (found.loss_3WG[:, 0, -1] != found.own_loss_3).all()
    everything = still(subject.run.config.model, subject.candidate(), np.ones((1, 1, 64), bool))
    assert found.own_loss_3[1] > 1 > 1e-3 > Effects.of(subject, [everything]).loss_3X[0]


def test_bands_are_octaves_of_the_trained_length(tokenizer_file):
    found = band_ablation(Subject(run=copier(tokenizer_file, rotary="rope(base=10)")), draws=1)
    assert found.start_G.tolist() == [4, 8, 16, 32]
    periods_R = 2 * np.pi * 10 ** (np.arange(64) / 64)
    counts = [((start <= periods_R) & (periods_R < 2 * start)).sum() for start in found.start_G]
    assert found.pairs_G.tolist() == counts
    assert found.random_l50_WGC.shape == (2, 4, 1)
    assert len(found.lines()) == 8


def test_pairs_of_the_head_that_copies_are_needed_and_others_are_not(tokenizer_file):
    subject = Subject(run=copier(tokenizer_file, others=1))
    idle, copying = (band_ablation(subject, [(0, head)], draws=1) for head in (0, 1))
    assert idle.loss_3WG[0].max() < 1e-2
    (zeroed,), (frozen,) = copying.loss_3WG[0]
    assert zeroed > 1 and frozen < 1e-2
    assert np.isnan(copying.l50_3WG[0, 0]).all()
