"""The capability study: cards have the frequencies and sizes they state; claims can be refuted."""

import math

import numpy as np
import pytest

import studies
from model.transformer import count_params
from studies.capability.recipe import octaves
from studies.card import SeedResult
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


def make_seeds(l50: float, forecast: float = math.nan, longest: int = 253) -> list[SeedResult]:
    """Return one seed whose mean accuracy follows L50."""
    accuracy = math.log2(min(l50, longest)) / math.log2(longest)
    return [SeedResult(0, 1, 1.0, l50, 0.0, accuracy, longest, forecast)]


INF = math.inf
SIZES = {f"head_dim={d}": x for d, x in zip((16, 32, 64, 128), (15, 21, 27, 33), strict=True)}
BOTH = {f"base={b},pairs={n}": x * b for b in (10, 30) for n, x in ((4, 6), (16, 4), (32, 2.5))}

# By card: L50s that refute none of its claims, and L50s that refute all of them.
CASES = {
    "C1": (
        {
            "base=10,heads=1": 20,
            "base=10,heads=8": INF,
            "base=30,heads=1": 60,
            "base=30,heads=4": INF,
        },
        {
            "base=10,heads=1": 30,
            "base=10,heads=8": 127,
            "base=30,heads=1": 60,
            "base=30,heads=4": 100,
        },
    ),
    "C2": (dict(B=3, A=18, E=20, D=23, C=25), dict(B=20, A=18, E=23, D=20, C=21)),
    "C3": (SIZES, dict.fromkeys(SIZES, 20)),
    "C4": (BOTH, dict.fromkeys(BOTH, 20)),
    "C5": (
        {f"base={b},T={t}": 2 * b for b in (10, 30, 100) for t in (128, 256, 512)},
        {f"base={b},T={t}": 100 * b / t for b in (10, 30, 100) for t in (128, 256, 512)},
    ),
    "C6": (
        {"1x1,base=10,shifted": 19, "base=10,aligned+shifted": 50, "base=10,shifted": 60},
        {"1x1,base=10,shifted": 30, "base=10,aligned+shifted": 50, "base=10,shifted": 40},
    ),
    "C7": (
        {"base=10,aligned+shifted": 200, "base=1e4,aligned+shifted": INF},
        {"base=10,aligned+shifted": 60, "base=1e4,aligned+shifted": INF},
    ),
    "C8": (
        {
            "base=10,heads=1": 20,
            "base=10,heads=4": INF,
            "base=1e4,heads=1": INF,
            "base=1e4,heads=4": INF,
        },
        {
            "base=10,heads=1": 20,
            "base=10,heads=4": 22,
            "base=1e4,heads=1": 20,
            "base=1e4,heads=4": INF,
        },
    ),
    "C10": (
        {"one-slow": INF, ("one-slow", "last head masked"): 40, "none-slow": 90},
        {"one-slow": INF, "none-slow": 90, ("none-slow", "last head masked"): 60},
    ),
    "C11": (
        {"1x64": 20, "4x16": 20, "1x256": 30, "4x64": INF},
        {"1x64": 20, "4x16": 60, "1x256": 130, "4x64": INF},
    ),
    "C12": (
        {f"base={b},keys={v}": b * x for b in (10, 30, 100) for v, x in ((32, 2), (256, 1.5))},
        {f"base={b},keys={v}": 2 * b for b in (10, 30, 100) for v in (32, 256)},
    ),
    "C13": ({"longest=40": 25, "all-distances": 20}, {"longest=40": 20, "all-distances": 20}),
    "C14": ({}, {}),
    "C15": ({}, {}),
    "C16": ({"design": 100, "base=22.45": 40}, {"design": 40, "base=22.45": 40}),
    "C17": (
        {"base=10,heads=1": 16, "base=100,heads=1": INF},
        {"base=10,heads=1": 100, "base=100,heads=1": 20},
    ),
    "C18": (
        {"two-still,keys-frozen": 5, "base=10,keys-frozen": 17, "base=10,all-frozen": 3},
        {"two-still,keys-frozen": 125, "base=10,keys-frozen": 30, "base=10,all-frozen": 9},
    ),
    "C19": ({"base=10": 27, "base=30": 80}, {"base=10": 25, "base=30": 60}),
}


@pytest.mark.parametrize("name", CARDS)
def test_claims_can_be_held_and_refuted(name):
    standing, falling = CASES[name]
    for claim in CARDS[name].claims:
        for l50s, is_refuted in ((standing, False), (falling, True)):
            seeds = [
                make_seeds(l50s.get((member, measurement), l50s.get(member)), standing.get(member))
                for member in claim.members
                for measurement in claim.measurements
            ]
            assert claim.is_refuted_by(*seeds) is is_refuted, claim.text


def test_beyond_all_distances_counts_as_the_longest():
    assert octaves(make_seeds(INF, longest=128) + make_seeds(32, longest=128)) == 6
