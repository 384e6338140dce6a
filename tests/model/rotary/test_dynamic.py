"""Dynamic variants: unstretched up to the trained length, the static variant beyond.

The numbers of dynamic NTK are transformers 5.23's (`_compute_dynamic_ntk_parameters`, factor 1,
base 500, head 64, trained 2048, row 8192: its base is then 500 * 4 ** (64 / 62)).
"""

import dataclasses

import numpy as np
import pytest

from ropewalk.model import rotary
from ropewalk.model.config import ModelConfig

ORIGINAL = 2048
STATIC = {
    "dynamic_position_interpolation": "position_interpolation(base=500,factor={factor})",
    "dynamic_ntk_aware": "ntk_aware(base=500,factor={factor})",
    "dynamic_ntk_by_parts": "ntk_by_parts(base=500,factor={factor},original_context_length=2048)",
    "dynamic_yarn": "yarn(base=500,factor={factor},original_context_length=2048)",
}


def dynamic(name: str, **shared) -> rotary.Rotary:
    variant = rotary.parse(f"{name}(base=500,original_context_length={ORIGINAL})")
    return dataclasses.replace(variant, **shared)


def model(variant: rotary.Rotary) -> ModelConfig:
    return ModelConfig(
        vocab_size=32, embed_dim=8, num_layers=1, num_heads=1, head_dim=64, mlp_dim=8,
        rotary=variant,
    )  # fmt: skip


def test_every_dynamic_variant_is_tested_here():
    assert {name for name in rotary.variants() if name.startswith("dynamic_")} == set(STATIC)


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("length", [1, 2047, 2048])
def test_up_to_the_trained_length_nothing_changes_bit_for_bit(name, length):
    plain = model(rotary.parse("rope(base=500)")).position_table(ORIGINAL)
    table = model(dynamic(name)).position_table(ORIGINAL, length)
    for ours, expected in zip(vars(table).values(), vars(plain).values(), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("length", [2049, 8192, 20480])
def test_beyond_it_is_the_static_variant_of_that_factor(name, length):
    static = rotary.parse(STATIC[name].format(factor=length / ORIGINAL))
    shared = {"rotary_fraction": 0.5, "log_n": "extrapolate"}
    assert dynamic(name).at_length(length) == static
    assert dynamic(name, **shared).at_length(length) == dataclasses.replace(static, **shared)
    assert not np.array_equal(static.inv_freq(64), dynamic(name).inv_freq(64))


def test_dynamic_ntk_has_the_numbers_of_transformers():
    literals = {
        0: 1.0, 1: 0.78747344, 8: 0.147872418, 16: 0.0218662526, 24: 0.00323341554,
        31: 0.000607173541,
    }  # fmt: skip
    inv_freq = dynamic("dynamic_ntk_aware").at_length(8192).inv_freq(64)
    for pair, value in literals.items():
        assert inv_freq[pair] == pytest.approx(value, rel=1e-6)
