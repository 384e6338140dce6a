"""The bases Gradient published for Llama 3 (May 2024)."""

import pytest

from ropewalk.model.rotary.scaled_base import ScaledBase


@pytest.mark.parametrize(
    "target, published", [(262_144, 283_461_213), (1_048_576, 3_580_165_449), (8192, 500_000)]
)
def test_the_bases_of_llama_3_gradient(target, published):
    """Their config.json files say 283461213.0 and 3580165449.0."""
    variant = ScaledBase(base=5e5, original_context_length=8192, target_context_length=target)
    assert int(variant.scaled_base) == published
