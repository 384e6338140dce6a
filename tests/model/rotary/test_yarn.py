"""Attention factors of YaRN; test_frequencies.py has its frequencies."""

import pytest

from ropewalk.model import rotary


@pytest.mark.parametrize(("factor", "attention_factor"), [(8, 1.2079441541679836), (1, 1.0)])
def test_the_attention_factor_applies_to_queries_and_to_keys(factor, attention_factor):
    variant = rotary.parse(f"yarn(base=1e4,factor={factor},original_context_length=4096)")
    assert variant.logit_scale == pytest.approx(attention_factor**2, rel=1e-12)


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
