"""YaRN against transformers 5.23.0, `_compute_yarn_parameters` (float32, so 1e-6 relative)."""

import numpy as np
import pytest

from model import rotary

# (base, head_dim, factor, original context): pairs and their inv_freq as transformers gives them.
REFERENCE = {
    (1e4, 128, 8.0, 4096): {
        0: 1.0, 8: 0.316227764, 16: 0.100000001, 24: 0.0273658652, 28: 0.0129951192,
        31: 0.00727290567, 40: 0.00103382161, 63: 1.44347741e-05,
    },
    # A small base: the upper clamp, rotary_dim - 1 and not rotary_dim / 2 - 1, decides the tail.
    (100.0, 64, 8.0, 2048): {
        0: 1.0, 8: 0.316227764, 16: 0.100000001, 20: 0.0483613536, 24: 0.0227684006,
        28: 0.0103140203, 31: 0.00548521429,
    },
    (1e4, 32, 16.0, 2048): {
        0: 1.0, 4: 0.100000001, 8: 0.00464285677, 12: 6.2500003e-05, 15: 1.11142463e-05,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFERENCE)
def test_frequencies_are_those_of_transformers(case):
    base, head_dim, factor, original = case
    text = f"yarn(base={base},factor={factor},original_context_length={original})"
    inv_freq = rotary.parse(text).inv_freq(head_dim)
    for pair, value in REFERENCE[case].items():
        assert inv_freq[pair] == pytest.approx(value, rel=1e-6), pair


@pytest.mark.parametrize(("factor", "attention_factor"), [(8, 1.2079441541679836), (1, 1.0)])
def test_the_attention_factor_applies_to_queries_and_to_keys(factor, attention_factor):
    variant = rotary.parse(f"yarn(base=1e4,factor={factor},original_context_length=4096)")
    assert variant.logit_scale == pytest.approx(attention_factor**2, rel=1e-12)


def test_factor_one_is_plain_rope():
    stretched = rotary.parse("yarn(base=500,factor=1,original_context_length=512)")
    np.testing.assert_array_equal(
        stretched.inv_freq(64), rotary.parse("rope(base=500)").inv_freq(64)
    )


def test_pairs_that_all_turn_often_are_all_kept():
    # Base 3 turns every pair hundreds of times in 65536 tokens.
    variant = rotary.parse("yarn(base=3,factor=4,original_context_length=65536)")
    np.testing.assert_array_equal(variant.inv_freq(16), rotary.parse("rope(base=3)").inv_freq(16))


# Head of 32, factor 8, original context 2048, by (base, truncate): pairs of the ramp.
TRUNCATION = {
    (100.0, False): {8: 0.100000001, 9: 0.0698889047, 12: 0.0225780979, 15: 0.00661400659},
    (100.0, True): {8: 0.100000001, 9: 0.0699420497, 12: 0.0231089536, 15: 0.00705227675},
    (500.0, False): {5: 0.143407494, 6: 0.0970166847, 10: 0.0124495672, 14: 0.000926808105},
    (500.0, True): {5: 0.143407494, 6: 0.0887399316, 10: 0.0115682138, 14: 0.000924187829},
    (1e4, False): {4: 0.100000001, 5: 0.0483229086, 8: 0.00423313351, 10: 0.000419459218},
    (1e4, True): {4: 0.100000001, 5: 0.0492048636, 8: 0.00499999989, 10: 0.000790569466},
}


@pytest.mark.parametrize("case", TRUNCATION)
def test_the_ramp_ends_at_whole_pairs_unless_told_not_to(case):
    base, truncate = case
    variant = rotary.parse(
        f"yarn(base={base},factor=8,original_context_length=2048,truncate={truncate})"
    )
    for pair, value in TRUNCATION[case].items():
        assert variant.inv_freq(32)[pair] == pytest.approx(value, rel=2e-6), pair


@pytest.mark.parametrize(
    ("options", "rotated", "unrotated"),
    [
        # 0.1 ln 40 + 1 = 1.36889; times 0.707: 1.26080; DeepSeek-V3 and V2 scale all alike.
        ("mscale=1,mscale_all_dim=1", 1.3688879454113936, 1.3688879454113936),
        ("mscale=0.707,mscale_all_dim=0.707", 1.2608037774058553, 1.2608037774058553),
        # transformers: attention factor 0.92104..., and DeepSeek's softmax has 1.36889 for all.
        ("mscale=0.707,mscale_all_dim=1", 0.9210423553163399 * 1.3688879454113936, 1.36888794541),
        # DeepSeek's default: what is unrotated is left alone.
        ("mscale_all_dim=0", 1.3688879454113936, 1.0),
        ("mscale=0", 1.0, 1.0),
    ],
)
def test_mscale_is_deepseeks(options, rotated, unrotated):
    variant = rotary.parse(f"yarn(base=1e4,factor=40,original_context_length=4096,{options})")
    assert variant.logit_scale == pytest.approx(rotated**2, rel=1e-12)
    assert variant.unrotated_logit_scale == pytest.approx(unrotated**2, rel=1e-10)
