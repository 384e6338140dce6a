"""Attention factor of longrope, and its factors; test_frequencies.py has its numbers."""

import dataclasses

import pytest

from ropewalk.model.rotary.longrope import Longrope

VARIANT = Longrope(
    base=10_000.0,
    pair_factors=(1.0, 2.0),
    original_context_length=4096,
    target_context_length=65_536,
)


def test_the_attention_factor_applies_to_queries_and_to_keys():
    """transformers gives 1.15470..., the sqrt of 4/3, for 16 times 4096 = 2^12 tokens."""
    assert VARIANT.logit_scale == pytest.approx(1.1547005383792517**2, rel=1e-14)
    short = dataclasses.replace(VARIANT, target_context_length=4096)
    assert short.logit_scale == 1.0
