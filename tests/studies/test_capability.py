"""The capability study: cards have the frequencies and sizes they state; claims are marked."""

import numpy as np
import pytest

import studies
from model.transformer import count_params
from theory.decay import first_violation, full_period, quarter_period

CARDS = studies.load_cards("capability")


def inv_freq(card: str, member: str) -> np.ndarray:
    config = CARDS[card].configs()[member]
    return config.model.position_table(config.data.context_length).inv_freq[0, 0]


def test_five_vectors_share_a_quarter_period_but_no_theory_length():
    """C2 compares vectors that only the theory length tells apart."""
    vectors = {name: inv_freq("C2", name) for name in "BAEDC"}
    assert {len(vector) for vector in vectors.values()} == {32}
    for vector in vectors.values():
        assert quarter_period(vector) == pytest.approx(14.617, abs=1e-3)
        assert vector.max() <= 1
    assert [first_violation(vector) for vector in vectors.values()] == [3, 5, 3, 15, 15]
    assert [int(np.isclose(v, v.min()).sum()) for v in vectors.values()] == [1, 1, 8, 16, 32]


def test_heads_of_all_sizes_have_the_same_slowest_pair():
    vectors = [inv_freq("C3", name) for name in CARDS["C3"].configs()]
    assert [2 * len(vector) for vector in vectors] == [16, 32, 64, 128]
    assert [full_period(vector) for vector in vectors] == pytest.approx([58.47] * 4, abs=0.01)


def test_members_of_c11_have_equal_parameters():
    sizes = {name: count_params(c.model)["total"] for name, c in CARDS["C11"].configs().items()}
    # Key smearing has one parameter per head.
    assert sizes["1x64"] + 1 == sizes["2x32"] and sizes["1x64"] + 3 == sizes["4x16"]
    assert sizes["1x256"] + 3 == sizes["4x64"]


def test_members_of_c5_have_equal_rows():
    configs = CARDS["C5"].configs().values()
    assert len({(c.train.num_steps, c.data.batch_size) for c in configs}) == 1
    assert sorted({c.data.context_length for c in configs}) == [128, 256, 512]


def test_c10_masks_its_slow_head():
    config = CARDS["C10"].configs()["one-slow"]
    slow = config.model.position_table(256).inv_freq[0].min(axis=1)
    masked, alone = (m.masked_heads for m in CARDS["C10"].measurements[1:])
    assert masked == ((0, int(slow.argmin())),)
    assert sorted((*masked, *alone)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
