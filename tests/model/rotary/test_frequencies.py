"""Frequencies of variants, radians per token: the literals of all variants in one table.

FORMULAS are the papers' formulas by mpmath with 40 digits: b^(-2i/d) (rope), the same / s (position
interpolation), (b s^(d/(d-2)))^(-2i/d) (ntk_aware), (b s)^(-2i/d) (ntk_old), Su's
1 / (λ (β λ)^(m-1)) (ntk_fixed) and 1 / (β^(m-1) exp(a m^b)) (ntk_mixed), (1 - γ) θ / s + γ θ
(ntk_by_parts), and 2405.14591, Table 4 and Section 5.5 (method1, method2). TRANSFORMERS are what
transformers 5.23.0 gave in float32; `ntk_aware` by 8 is its dynamic scaling of factor 1 at 8 times
the trained length. The small base of yarn has the upper clamp rotary_dim - 1 in its tail.
"""

import numpy as np
import pytest

from ropewalk.model import rotary
from ropewalk.model.rotary.rope import Rope
from ropewalk.theory.decay import cosine_sum

LONG = "pair_factors=(1,1.05,1.25,2,3.5,6,10,16),original_context_length=4096"
LONG += ",target_context_length=65536"

# fmt: off
FORMULAS = [
    ("rope(base=1e4)", 16, {1: 0.31622776601683794, 7: 0.00031622776601683794}),
    ("rope(base=500000)", 128, {0: 1.0, 1: 0.8146172338565447, 63: 2.455140791131609e-06}),
    ("rope(base=1e4,rotary_fraction=0.25)", 32, {0: 1.0, 3: 0.001, 4: 0.0, 15: 0.0}),
    ("nope", 8, {0: 0.0, 3: 0.0}),
    ("position_interpolation(base=1e4,factor=3)", 8, {0: 1 / 3, 3: 0.0003333333333333333}),
    ("ntk_aware(base=500,factor=2)", 16, {0: 1.0, 1: 0.4165090711681466, 7: 0.0021745592760409817}),
    ("ntk_old(base=100,factor=4)", 16, {1: 0.4728708045015879, 7: 0.005286856317202821}),
    ("ntk_fixed(base=100,factor=4)", 16, {0: 0.8408964152537145, 7: 0.004445698525097307}),
    ("ntk_mixed(base=500,factor=8,exponent=0.3)", 16,
     {0: 0.3281300908996046, 3: 0.017961774605488996, 7: 0.0005436398190102454}),
    ("ntk_by_parts(base=100,factor=8,original_context_length=64)", 16,
     {0: 0.38427989719826255, 3: 0.02630088421925175, 7: 0.0022228492625486537}),
    ("ntk_by_parts(base=10000,factor=4,original_context_length=512,beta_slow=2,beta_fast=8)", 16,
     {2: 0.1, 3: 0.0101859163578813, 4: 0.0025}),
    ("scaled_base(base=500,original_context_length=1024,target_context_length=8192)", 16,
     {1: 0.3348869024558353, 7: 0.00047237525268296795}),
    ("method1", 128, {1: 0.7858299804196346, 63: 2.545079788037606e-07}),
    ("method2", 128, {1: 0.8259908331944308, 43: 0.0002691130667821122,
     44: 0.00022228492625486534, 63: 1.4434774808618228e-05}),
]
TRANSFORMERS = [
    ("ntk_aware(base=1e4,factor=8)", 128, {1: 0.837848008, 63: 1.44347741e-05}),
    ("p_rope(base=1e4,rotary_fraction=0.25)", 128, {1: 0.865964353, 15: 0.115478203, 16: 0.0}),
    ("llama3(base=5e5,factor=8,original_context_length=8192)", 128, {20: 0.0165604409,
     29: 0.00216657063, 32: 0.000524846022, 35: 9.55621217e-05, 63: 3.06892588e-07}),
    (f"longrope(base=100,{LONG})", 16, {1: 0.535563171, 4: 0.0285714287, 7: 0.00111142464}),
    ("yarn(base=10000,factor=8,original_context_length=4096)", 128, {8: 0.316227764,
     24: 0.0273658652, 31: 0.00727290567, 40: 0.00103382161, 63: 1.44347741e-05}),
    ("yarn(base=100,factor=8,original_context_length=2048,truncate=False)", 32, {8: 0.100000001,
     9: 0.0698889047, 15: 0.00661400659}),
    ("yarn(base=100,factor=8,original_context_length=2048)", 32, {8: 0.100000001,
     9: 0.0699420497, 15: 0.00705227675}),
]
# fmt: on


@pytest.mark.parametrize(
    "text, head_dim, expected, tolerance",
    [*((*row, 1e-13) for row in FORMULAS), *((*row, 2e-6) for row in TRANSFORMERS)],
)
def test_frequencies(text, head_dim, expected, tolerance):
    """`expected` has some pairs by number."""
    inv_freq = rotary.parse(text).inv_freq(head_dim)[list(expected)]
    np.testing.assert_allclose(inv_freq, list(expected.values()), rtol=tolerance)


L2048 = "original_context_length=2048"
L4096 = "original_context_length=4096"
YARN40 = f"yarn(base=1e4,factor=40,{L4096}"


@pytest.mark.parametrize(
    ("text", "rotated", "unrotated"),
    [
        *((x, 1.0, 1.0) for x in ("nope", f"llama3(base=9,factor=8,{L2048})")),
        (f"ntk_by_parts(base=9,factor=8,{L2048})", 1.0, 1.0),
        (f"yarn(base=1e4,factor=8,{L4096})", 1.2079441541679836, 1.2079441541679836),
        (f"yarn(base=1e4,factor=1,{L4096})", 1.0, 1.0),
        # 0.1 ln 40 + 1 = 1.36889; times 0.707: 1.26080; DeepSeek-V3 and V2 scale all alike.
        (f"{YARN40},mscale=1,mscale_all_dim=1)", 1.3688879454113936, 1.3688879454113936),
        (f"{YARN40},mscale=0.707,mscale_all_dim=0.707)", 1.2608037774058553, 1.2608037774058553),
        # transformers: attention factor 0.92104..., and DeepSeek's softmax has 1.36889 for all.
        (f"{YARN40},mscale=0.707,mscale_all_dim=1)", 1.2608037774058553, 1.3688879454113936),
        # DeepSeek's default: what is unrotated is left alone.
        (f"{YARN40},mscale_all_dim=0)", 1.3688879454113936, 1.0),
        (f"{YARN40},mscale=0)", 1.0, 1.0),
        # transformers gives 1.15470..., the sqrt of 4/3, for 16 times 4096 = 2^12 tokens.
        (f"longrope(base=100,{LONG})", 1.1547005383792517, 1.1547005383792517),
        (f"longrope(base=9,pair_factors=(1,2),{L4096},target_context_length=4096)", 1.0, 1.0),
    ],
)
def test_the_attention_factor_applies_to_queries_and_to_keys(text, rotated, unrotated):
    variant = rotary.parse(text)
    assert variant.logit_scale == pytest.approx(rotated**2, rel=1e-12)
    assert variant.unrotated_logit_scale == pytest.approx(unrotated**2, rel=1e-10)


@pytest.mark.parametrize("fraction, head_dim, pairs", [(0.4, 10, 2), (0.3, 10, 1), (0.7, 20, 7)])
def test_a_fraction_rounds_down_to_whole_pairs(fraction, head_dim, pairs):
    """0.3 of 10 is 3, of which one pair turns; 0.7 * 20 is 13.999... in binary, and means 14."""
    variant = Rope(base=100.0, rotary_fraction=fraction)
    assert np.count_nonzero(variant.inv_freq(head_dim)) == pairs


@pytest.mark.parametrize("name, counts", [("method1", (0, 0)), ("method2", (97, 2554))])
def test_the_sum_is_negative_at_as_many_distances_as_in_the_paper(name, counts):
    """Table 4 of arXiv 2405.14591: below 15k and below 30k; a k is 1024."""
    negative = cosine_sum(rotary.parse(name).inv_freq(128), np.arange(30 * 1024)) < 0
    assert (negative[: 15 * 1024].sum(), negative.sum()) == counts


def test_the_pair_that_both_rules_meet_at_is_the_same_share_of_a_smaller_head():
    """22 of 32 pairs of method2: those from there on are interpolated, that before is not yet."""
    inv_freq, plain = (rotary.parse(x).inv_freq(64) for x in ("method2", "rope(base=1e4)"))
    np.testing.assert_allclose(plain[22:] / inv_freq[22:], np.full(10, 8.0), rtol=1e-14)
    assert plain[21] / inv_freq[21] == pytest.approx(7.2784757959773342, rel=1e-14)  # 8^(21/22)


@pytest.mark.parametrize("target, published", [(262_144, 283_461_213), (1_048_576, 3_580_165_449)])
def test_the_bases_of_llama_3_gradient(target, published):
    """Their config.json files (May 2024) say 283461213.0 and 3580165449.0."""
    text = f"scaled_base(base=5e5,original_context_length=8192,target_context_length={target})"
    assert int(rotary.parse(text).scaled_base) == published  # pyright: ignore
