"""Zeroed and frozen pairs, compared with the model's queries and with tables of other variants."""

import dataclasses

import jax
import numpy as np
import pytest

from ropewalk.model.attention import feature_scale
from ropewalk.model.positions import cos_sin, freeze_pairs
from ropewalk.model.transformer import select_heads, without_pairs
from ropewalk.probes import Subject, capture
from ropewalk.probes.analyses.band_ablation import BandAblation, _draw, freeze_candidate
from ropewalk.probes.capturing import complex_pairs
from tests.models import small_model
from tests.probes.helpers import copying_run
from tests.probes.test_capturing import MODELS, make_rows, random_model

pytestmark = pytest.mark.slow


def random_pairs(run, *, alike: bool) -> np.ndarray:
    """Return half of the pairs of each head, at random."""
    model = run.config.model
    shape = model.num_layers, 1 if alike else model.num_heads, model.head_dim // 2
    pairs_LNR = np.random.default_rng(3).random(shape) < 0.5
    return np.broadcast_to(pairs_LNR, (shape[0], model.num_heads, shape[2]))


@pytest.mark.parametrize("name", ["heads", "norm", "mla, query latent, shifted"])
def test_zeroed_pairs_are_0_in_the_query_and_no_other_pair_changes(name):
    run = random_model(*MODELS[name])
    pairs_LNR = random_pairs(run, alike=run.config.model.qk_norm)
    ablated = dataclasses.replace(
        run, params=without_pairs(run.config.model, run.params, pairs_LNR)
    )
    (q_BTNR, k_BSNR), (before_BTNR, before_BSNR) = (
        complex_pairs(*capture(model_run, **make_rows(run)).unrotated(0))
        for model_run in (ablated, run)
    )
    assert np.abs(before_BTNR).min() > 0
    np.testing.assert_allclose(q_BTNR, np.where(pairs_LNR[0], 0, before_BTNR), atol=1e-6)
    np.testing.assert_array_equal(k_BSNR, before_BSNR)


def test_freezing_slow_pairs_of_rope_gives_p_rope():
    full, half = (
        random_model({}, text).config.model
        for text in ("rope(base=30)", "p_rope(base=30,rotary_fraction=0.5)")
    )
    is_slow_R = np.arange(full.head_dim // 2) >= full.head_dim // 4
    table = freeze_pairs(
        full.position_table(40), np.broadcast_to(is_slow_R, (2, 1, len(is_slow_R)))
    )
    angles, expected = (
        cos_sin(x.cycles_hi[0], x.cycles_lo[0], np.array([[0, 39, 2**24 - 1]]))
        for x in (table, half.position_table(40))
    )
    np.testing.assert_array_equal(angles, expected)


def test_frozen_pairs_keep_their_scale_and_heads_their_shared_key():
    """Phi-4-mini scales rotated features only; key heads of two query heads rotate for both."""
    text = "longrope(base=30,pair_factors=(1,2),original_context_length=4,"
    text += "target_context_length=40,cool_rest=True,rotary_fraction=0.5)"
    config = small_model(rotary=text)
    table = jax.tree.map(lambda leaf: leaf[0], config.position_table(40))
    scales = [feature_scale(config, x) for x in (table, freeze_pairs(table, np.ones((1, 4)) > 0))]
    assert len(np.unique(scales)) == 2 and (scales[0] == scales[1]).all()
    pairs_LNR = np.arange(4)[None, :, None] == 1
    with pytest.raises(ValueError, match="2 heads share a key"):
        freeze_candidate(small_model(num_heads=4, num_kv_heads=2), None, pairs_LNR)  # pyright: ignore


def test_freezing_unrotated_pairs_changes_nothing(tokenizer, monkeypatch):
    """Bit-equal. The copying head has a pair for each key, half of which do not rotate."""
    rotary = "p_rope(base=30,rotary_fraction=0.5)"
    subject = Subject(run=copying_run(tokenizer, rotary=rotary))
    monkeypatch.setattr("ropewalk.probes.analyses.band_ablation._NUM_DRAWS", 1)
    result = BandAblation.measure(subject)
    assert np.isinf(result.start_G[-1]) and result.pairs_G[-1] == 32
    np.testing.assert_array_equal(result.l50_3WG[:, 1, -1], result.intact_l50_3)
    assert (result.loss_3WG[:, 1, -1] == result.intact_loss_3).all()
    # Zeroing them changes the loss; without any rotation the head is always right.
    assert (result.loss_3WG[:, 0, -1] != result.intact_loss_3).all()
    everything = freeze_candidate(
        subject.run.config.model, subject.candidate(), np.ones((1, 1, 64), bool)
    )
    assert result.intact_loss_3[1] > 1 > 1e-3 > subject.effects([everything]).loss_3X[0]


def test_frozen_controls_draw_pairs_that_rotate():
    """Pairs 4 to 7 do not rotate, and other pairs of the band have no other draw than before."""
    band_R, order_R = np.arange(8) < 3, np.array([7, 6, 0, 5, 1, 4, 3, 2])
    drawn = [
        np.flatnonzero(_draw(pairs_R[None, None], order_R[None, None], rotates_R)).tolist()
        for pairs_R, rotates_R in (
            (band_R, np.ones(8, bool)),
            (band_R, np.arange(8) < 4),
            (np.arange(8) < 6, np.arange(8) < 4),
        )
    ]
    # Places of 0, 1 and 2 in the order, of which 4 and 7 do not rotate: of 5 and 6 do.
    assert drawn == [[2, 4, 7], [1, 2, 3], [0, 1, 2, 3]]


def test_some_heads_are_selected_and_others_named(tokenizer):
    with pytest.raises(ValueError, match="selects no head"):
        BandAblation.measure(Subject(run=copying_run(tokenizer)), heads=[])
    selected = select_heads((2, 3), [(1, 2), (0, 0)])
    assert selected.tolist() == [[True, False, False], [False, False, True]]
    with pytest.raises(ValueError, match="no head 3 in layer 1"):
        select_heads((2, 3), [(1, 3)])
