"""Dynamic variants: unstretched up to the trained length, the static variant beyond."""

import dataclasses

import numpy as np
import pytest

from ropewalk.model import rotary
from tests.models import small_model

ORIGINAL = 2048
STATIC = {
    "dynamic_position_interpolation": "position_interpolation(base=500,factor={factor})",
    "dynamic_ntk_aware": "ntk_aware(base=500,factor={factor})",
    "dynamic_ntk_by_parts": "ntk_by_parts(base=500,factor={factor},original_context_length=2048)",
    "dynamic_yarn": "yarn(base=500,factor={factor},original_context_length=2048)",
}


def test_every_dynamic_variant_is_tested_here():
    assert {name for name in rotary.variants() if name.startswith("dynamic_")} == set(STATIC)


@pytest.mark.parametrize("name", STATIC)
def test_a_dynamic_variant_is_plain_up_to_the_trained_length_and_static_beyond(name):
    variant = rotary.parse(f"{name}(base=500,original_context_length={ORIGINAL})")
    plain = small_model(head_dim=64, rotary=rotary.parse("rope(base=500)"))
    for length in (1, ORIGINAL):
        table = small_model(head_dim=64, rotary=variant).position_table(ORIGINAL, length)
        for field, expected in vars(plain.position_table(ORIGINAL)).items():
            np.testing.assert_array_equal(getattr(table, field), expected)
    for length in (ORIGINAL + 1, 8192):
        static = rotary.parse(STATIC[name].format(factor=length / ORIGINAL))
        shared = {"rotary_fraction": 0.5, "log_n": "extrapolate"}
        changed = dataclasses.replace(variant, **shared)
        assert variant.at_length(length) == static
        assert changed.at_length(length) == dataclasses.replace(static, **shared)
        assert not np.array_equal(static.inv_freq(64), variant.inv_freq(64))
