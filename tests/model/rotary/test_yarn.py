"""YaRN against transformers 5.23.0, `_compute_yarn_parameters` (float32, so 1e-6 relative)."""

import numpy as np
import pytest

from model import rotary

# (base, head_dim, factor, original context): pairs and their inv_freq as transformers gives them.
REFERENCE = {
    (1e4, 128, 8.0, 4096): {
        0: 1.0,
        8: 0.316227764,
        16: 0.100000001,
        24: 0.0273658652,
        28: 0.0129951192,
        31: 0.00727290567,
        40: 0.00103382161,
        63: 1.44347741e-05,
    },
    # A small base: the upper clamp, rotary_dim - 1 and not rotary_dim / 2 - 1, decides the tail.
    (100.0, 64, 8.0, 2048): {
        0: 1.0,
        8: 0.316227764,
        16: 0.100000001,
        20: 0.0483613536,
        24: 0.0227684006,
        28: 0.0103140203,
        31: 0.00548521429,
    },
    (1e4, 32, 16.0, 2048): {
        0: 1.0,
        4: 0.100000001,
        8: 0.00464285677,
        12: 6.2500003e-05,
        15: 1.11142463e-05,
    },
}


@pytest.mark.parametrize("case", REFERENCE)
def test_frequencies_are_those_of_transformers(case):
    base, head_dim, factor, original = case
    text = f"yarn(base={base},factor={factor},original_context_length={original})"
    inv_freq = rotary.parse(text).inv_freq(head_dim)
    for pair, value in REFERENCE[case].items():
        assert inv_freq[pair] == pytest.approx(value, rel=1e-6), pair


@pytest.mark.parametrize(("factor", "attention_factor"), [(8, 1.2079441541679836), (1, 1.0)])
def test_the_attention_factor_applies_to_queries_and_to_keys(factor, attention_factor):
    schedule = rotary.parse(f"yarn(base=1e4,factor={factor},original_context_length=4096)")
    assert schedule.logit_scale == pytest.approx(attention_factor**2, rel=1e-12)


def test_factor_one_is_plain_rope():
    stretched = rotary.parse("yarn(base=500,factor=1,original_context_length=512)")
    np.testing.assert_array_equal(
        stretched.inv_freq(64), rotary.parse("rope(base=500)").inv_freq(64)
    )


def test_pairs_that_all_turn_often_are_all_kept():
    # Base 3 turns every pair hundreds of times in 65536 tokens.
    schedule = rotary.parse("yarn(base=3,factor=4,original_context_length=65536)")
    np.testing.assert_array_equal(schedule.inv_freq(16), rotary.parse("rope(base=3)").inv_freq(16))


@pytest.mark.parametrize("change", ["factor=0.5", "beta_fast=1", "original_context_length=0"])
def test_senseless_parameters_are_refused(change):
    name = change.partition("=")[0]
    parameters = {"base": "1e4", "factor": "8", "original_context_length": "4096"}
    parameters[name] = change.partition("=")[2]
    text = ",".join(f"{key}={value}" for key, value in parameters.items())
    with pytest.raises(ValueError, match=name):
        rotary.parse(f"yarn({text})")
