"""Variants with one free number: frequencies, bounds and proofs against the papers' formulas."""

import itertools
import math
from operator import mul

import mpmath
import numpy as np
import pytest

from model import rotary
from theory import bound, family

HEAD_DIM = 64


def series(base, dim=HEAD_DIM):
    step = mpmath.power(base, -mpmath.mpf(2) / dim)
    return list(itertools.accumulate(itertools.repeat(step, dim // 2 - 1), initial=1, func=mul))


def yarn(base, factor, original):
    """The released code of YaRN: the ramp between two whole pairs, beta_fast=32 and beta_slow=1."""

    def pair(cycles):
        return HEAD_DIM * mpmath.log(original / (cycles * 2 * mpmath.pi)) / (2 * mpmath.log(base))

    low = max(int(mpmath.floor(pair(32))), 0)
    high = min(int(mpmath.ceil(pair(1))), HEAD_DIM - 1)
    span = max(high - low, mpmath.mpf("0.001"))
    shares = [min(max((i - low) / span, 0), 1) for i in range(HEAD_DIM // 2)]
    return [f * (1 - s) + f / factor * s for f, s in zip(series(base), shares, strict=True)]


# The formulas of the papers, in the precision of mpmath.
FORMULAS = {
    "rope(base=?,rotary_fraction=0.75)": lambda b: series(b, 48) + [0] * 8,
    "position_interpolation(base=?,factor=4)": lambda b: [f / 4 for f in series(b)],
    "position_interpolation(base=100,factor=?)": lambda s: [f / s for f in series(100)],
    "ntk_aware(base=?,factor=4)": lambda b: series(b * mpmath.power(4, mpmath.mpf(64) / 62)),
    "ntk_aware(base=100,factor=?)": lambda s: series(100 * mpmath.power(s, mpmath.mpf(64) / 62)),
    "ntk_old(base=100,factor=?)": lambda s: series(100 * s),
    "ntk_fixed(base=100,factor=?)": lambda s: [
        f / mpmath.power(s, mpmath.mpf(i + 1) / 32) for i, f in enumerate(series(100))
    ],
    "p_rope(base=?,rotary_fraction=0.75)": lambda b: series(b)[:24] + [0] * 8,
    "method1(base=?)": series,
    "yarn(base=?,factor=8,original_context_length=512)": lambda b: yarn(b, 8, 512),
    "yarn(base=1000,factor=?,original_context_length=512)": lambda s: yarn(1000, s, 512),
    "yarn(base=?,factor=8,original_context_length=4096)": lambda b: yarn(b, 8, 4096),
}
FAMILIES = {
    text: family.free_number(
        rotary.parse(text.replace("?", "2")),
        text.split("=?")[0].split("(")[-1].split(",")[-1],
        HEAD_DIM,
    )
    for text in FORMULAS
}


@pytest.mark.parametrize("text", FAMILIES)
def test_families_have_the_frequencies_of_their_variants(text):
    for x in np.random.default_rng(0).uniform(0.01, 12, 60):
        variant = rotary.parse(text.replace("?", repr(math.exp(x))))
        piece = next(piece for piece in FAMILIES[text] if x < piece.stop)
        ours = np.append(piece.inv_freq(x), np.zeros(piece.unrotated))
        np.testing.assert_allclose(ours, variant.inv_freq(64), rtol=1e-9)


@pytest.mark.parametrize("text", FAMILIES)
def test_the_smallest_number_of_a_family(text):
    """The variant of `high` covers the length; none of three hundred smaller ones does."""
    length = 700
    (answer,) = bound.smallest(FAMILIES[text], [length])

    def lowest(number):
        inv_freq = rotary.parse(text.replace("?", repr(float(number)))).inv_freq(64)
        return np.cos(np.outer(np.arange(length), inv_freq)).sum(axis=1).min()

    assert answer.low > 1
    assert lowest(answer.high) > -1e-9
    assert max(map(lowest, np.geomspace(1.0001, answer.low * (1 - 1e-9), 300))) < 0
    stable = bound.stable(FAMILIES[text], length)
    assert stable.high >= answer.low
    assert min(map(lowest, stable.high * np.geomspace(1.0001, 1e6, 100))) > -1e-9


def test_ntk_raises_the_base_by_its_formula():
    """Its smallest base is plain RoPE's over factor^(d/(d-2))."""
    (ntk,) = bound.smallest(FAMILIES["ntk_aware(base=?,factor=4)"], [700])
    assert ntk.high * 4 ** (64 / 62) == pytest.approx(bound.smallest_base(700, 64).high, rel=1e-8)


# --- proofs, checked independently ---------------------------------------------------------------


def exact(text, x, m):
    """Return B_m of a family's number e^x with thirty digits."""
    with mpmath.workdps(30):
        angles = (int(m) * f for f in FORMULAS[text](mpmath.exp(mpmath.mpf(float(x)))))
        return mpmath.fsum(map(mpmath.cos, angles))


def proofs(text, length):
    """Return every interval of x that is proved infeasible, and its witness."""
    (answer,) = bound.smallest(FAMILIES[text], [length])
    chain = list(zip(*answer.certificate, strict=True))
    try:
        return [*chain, *bound.intervals(FAMILIES[text], length, 1.5).infeasible]
    except (
        ValueError
    ):  # however large a number, a larger one may fail again: only the chain is left
        return chain


def check(text, intervals, samples):
    rng = np.random.default_rng(0)
    for left, right, m in intervals:
        # Numbers are above 1, so x = 0 stands for the next number.
        for x in (max(left, 1e-15), right, *rng.uniform(left, right, samples)):
            assert exact(text, x, m) < 0, (x, m)


@pytest.mark.parametrize("text", FORMULAS)
def test_a_proof_holds_on_all_of_its_interval(text):
    check(text, proofs(text, 700)[::101], samples=1)


@pytest.mark.long
@pytest.mark.parametrize("length", [100, 8192])
@pytest.mark.parametrize("text", FORMULAS)
def test_every_proof_holds(text, length):
    check(text, proofs(text, length), samples=1)


@pytest.mark.parametrize("length", [512, 2048])
def test_the_gap_at_a_jump_is_proved_from_both_sides(length):
    """In the gap, the frequencies are those of one of the sides, and both are infeasible."""
    pieces = FAMILIES["yarn(base=?,factor=8,original_context_length=4096)"]
    (answer,) = bound.smallest(pieces, [length])
    left, right, witnesses = answer.certificate
    gaps = np.flatnonzero(left[1:] != right[:-1])
    assert len(gaps) > 50
    for gap in gaps:
        assert 0 < left[gap + 1] - right[gap] < 3e-12
        for k in (gap, gap + 1):
            (piece,) = (p for p in pieces if p.start < (left[k] + right[k]) / 2 < p.stop)
            for x in (right[gap], left[gap + 1]):
                assert bound.reach(piece, x, witnesses[k : k + 1])[0] > 0
