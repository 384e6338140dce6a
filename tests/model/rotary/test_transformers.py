"""Every variant that transformers has, against its own functions: `make test-hf`."""

import math

import numpy as np
import pytest

from ropewalk.model.rotary import parse

pytestmark = pytest.mark.hf

BASES = (100.0, 500.0, 1e4, 5e5)
YARN = "yarn(base={base},factor=8,original_context_length=2048"
LLAMA = "llama3(base={base},factor=8,original_context_length="
PI = "position_interpolation(base={base},factor=4"
# (our expression, transformers' rope_type, its parameters)
CASES = [
    ("rope(base={base},rotary_fraction=0.5)", "linear", dict(factor=1.0, part=0.5)),
    ("p_rope(base={base},rotary_fraction=0.25)", "proportional", dict(part=0.25)),
    (f"{PI})", "linear", dict(factor=4.0)),
    (f"{PI},rotary_fraction=0.5)", "linear", dict(factor=4.0, part=0.5)),
    # With factor 1 the dynamic base at 4 times the trained 2048 tokens is NTK-aware by 4.
    ("ntk_aware(base={base},factor=4)", "dynamic", dict(factor=1.0, length=8192)),
    (f"{YARN})", "yarn", dict(factor=8.0, original=2048)),
    (f"{YARN},truncate=False)", "yarn", dict(factor=8.0, original=2048, truncate=False)),
    (
        f"{YARN},beta_fast=16,beta_slow=2,rotary_fraction=0.5)", "yarn",
        dict(factor=8.0, original=2048, beta_fast=16.0, beta_slow=2.0, part=0.5),
    ),
    (
        f"{YARN},mscale=0.707,mscale_all_dim=0.5)", "yarn",
        dict(factor=8.0, original=2048, mscale=0.707, mscale_all_dim=0.5),
    ),
    (
        f"{LLAMA}8192)", "llama3",
        dict(factor=8.0, original=8192, low_freq_factor=1.0, high_freq_factor=4.0),
    ),
    (
        f"{LLAMA}256,low_freq_factor=2,high_freq_factor=16)", "llama3",
        dict(factor=8.0, original=256, low_freq_factor=2.0, high_freq_factor=16.0),
    ),
]  # fmt: skip


def theirs(rope_type, base, head_dim, length=None, **parameters):
    """inv_freq (padded with zeros to the head) and the attention factor."""
    pytest.importorskip("torch", exc_type=ImportError)
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    renamed = {"part": "partial_rotary_factor", "original": "original_max_position_embeddings"}
    config = transformers.LlamaConfig(
        head_dim=head_dim,
        hidden_size=head_dim,
        num_attention_heads=1,
        max_position_embeddings=2048,
        rope_parameters={
            "rope_type": rope_type,
            "rope_theta": base,
            **{renamed.get(key, key): value for key, value in parameters.items()},
        },
    )
    inv_freq, factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length)
    inv_freq = inv_freq.double().numpy()
    return np.concatenate([inv_freq, np.zeros(head_dim // 2 - len(inv_freq))]), factor


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize("text, rope_type, parameters", CASES)
def test_frequencies_and_attention_factor(text, rope_type, parameters, base, head_dim):
    variant = parse(text.format(base=base))
    inv_freq, factor = theirs(rope_type, base, head_dim, **parameters)
    # float32 on their side; where the ramp subtracts, that is 2e-6 relative.
    np.testing.assert_allclose(variant.inv_freq(head_dim), inv_freq, rtol=5e-6)
    # Of DeepSeek's two scales transformers' function returns the ratio, its model has the other.
    if "mscale_all_dim" in parameters:
        factor *= math.sqrt(variant.unrotated_logit_scale)
        assert variant.unrotated_logit_scale == pytest.approx((0.1 * 0.5 * math.log(8) + 1) ** 2)
    assert variant.logit_scale == pytest.approx(factor**2, rel=1e-12)
