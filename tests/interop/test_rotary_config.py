"""Rope parameters in both styles of config.json; `test_hf_config.py` asks transformers 5."""

import numpy as np
import pytest

from ropewalk.interop.architectures import make_config
from ropewalk.interop.choose import choose_architecture
from ropewalk.interop.rotary_config import make_rope_parameters, read_variant
from ropewalk.model.rotary import parse
from ropewalk.model.rotary.base import HfHead
from ropewalk.model.rotary.rope_parameters import compute_frequencies, read_rope
from tests.interop.weights_helpers import CASES, CONTEXT, PLAIN, changed

# Version 4 does not have mellum, and has other names for two bases, or reads GPT-NeoX's own.
_OTHER_NAMES = {"mellum", "olmo3", "gpt_neox", "gemma3_text"}
OLD = [name for name in CASES if CASES[name][0] not in _OTHER_NAMES]
MORE = [
    "p_rope(base=500,rotary_fraction=0.5)", "explicit(values=(.01,.9,.31,.2,1.1,.05,.013,.4))",
    "ntk_by_parts(base=500,factor=4,original_context_length=24)", "ntk_fixed(base=500,factor=4)",
    "yarn(base=500,factor=4,original_context_length=12,truncate=False)",
]  # fmt: skip


@pytest.mark.parametrize("name", [*OLD, *MORE])
def test_version_4_reads_the_same_vector(name):
    """It reads rope_theta and rope_scaling, and takes YaRN's factor from the lengths."""
    model = CASES[name][2] if name in CASES else changed(PLAIN, name)
    architecture = choose_architecture(model, CONTEXT)
    config = make_config(architecture, model, CONTEXT) | {"rope_parameters": None}
    rope = read_rope(config)
    if rope["rope_type"] == "yarn":
        assert rope["factor"] == CONTEXT / rope["original_max_position_embeddings"]
    # Lists up to the original length and beyond it must not differ.
    assert rope.get("long_factor") == rope.get("short_factor")
    head = HfHead(model.rope_head_dim, CONTEXT, architecture.mla)
    inv_freq, scales = compute_frequencies(rope, head, CONTEXT)
    table = model.position_table(CONTEXT)
    expected = table.inv_freq[0, 0, : len(inv_freq)]  # of smollm3 the first layer rotates
    np.testing.assert_allclose(inv_freq, expected, rtol=1e-12, atol=1e-25)
    assert scales.rotated == pytest.approx(table.logit_scale[0, 0], rel=1e-12)
    if model.mla is not None:
        rest = table.unrotated_logit_scale[0, 0]
        assert scales.unrotated == pytest.approx(rest, rel=1e-12)


@pytest.mark.parametrize(
    "written",
    [
        "position_interpolation(base=500,factor=4)",
        "llama3(base=500000.0,factor=8,original_context_length=64)",
        "yarn(base=500,factor=4,original_context_length=12)",
        "yarn(base=500,factor=4,original_context_length=12,mscale=0.0)",
    ],
)
def test_variants_are_imported_by_name(written):
    rotary, head = parse(written), HfHead(16, CONTEXT)
    rope = make_rope_parameters(rotary, head)
    # Without a temperature, which is none of the default's.
    assert "mscale" not in written or rope["attention_factor"] == 1.0
    assert read_variant(rope, head, CONTEXT, "x") == rotary


def test_dynamic_is_imported_with_factor_1():
    rope, head = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 1.0}, HfHead(16, CONTEXT)
    expected = parse(f"dynamic_ntk_aware(base=500,original_context_length={CONTEXT})")
    assert all(read_variant(rope, head, n, "x") == expected for n in (CONTEXT, 4 * CONTEXT))
    with pytest.raises(ValueError, match="is not imported; only factor=1"):
        read_variant(rope | {"factor": 2.0}, head, CONTEXT, "x")


def test_deepseek_scales_all_logits_by_mscale_of_scaled_types_only():
    """DeepseekV3's `yarn_apply_mscale` ignores it where rope_type is default."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mscale_all_dim": 1.0, "factor": 40.0}
    head = HfHead(16, CONTEXT, mla=True)
    assert compute_frequencies(rope, head)[1] == (1.0, 1.0)
    scaled = compute_frequencies(rope | {"rope_type": "linear"}, head)[1]
    assert scaled.rotated == pytest.approx(1.3688879454**2)  # 0.1 ln 40 + 1


def test_a_negative_frequency_is_refused():
    variant = parse("recorded(name='back',values=(1.0,0.5,-0.2,0.0))")
    with pytest.raises(ValueError, match="Recorded has a negative frequency"):
        make_rope_parameters(variant, HfHead(8, 64))
