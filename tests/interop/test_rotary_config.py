"""Rope parameters against the formulas of transformers 4, restated here with loops.

Version 4 cannot be installed beside version 5, which `test_export.py` uses.
"""

import math
from typing import Any

import numpy as np
import pytest

from ropewalk.interop.architectures import make_config
from ropewalk.interop.choose import choose_architecture
from ropewalk.interop.rotary_config import make_rope_parameters, read_variant
from ropewalk.model.rotary import parse
from ropewalk.model.rotary.base import HfHead
from ropewalk.model.rotary.recorded import Recorded
from tests.interop.weights_helpers import CASES, CONTEXT, PLAIN, changed


def version_4(config: dict[str, Any]) -> tuple[list[float], float, float]:
    """Return inv_freq, the factor of cosines and sines, and DeepSeek's factor of all logits."""
    scaling = config["rope_scaling"] or {}
    kind, base = scaling.get("rope_type", "default"), config["rope_theta"]
    head_dim = config.get("qk_rope_head_dim") or config["head_dim"]
    dim = int(head_dim * config.get("partial_rotary_factor", 1.0))
    plain = [base ** (-2 * i / dim) for i in range(dim // 2)]
    longest, factor = config["max_position_embeddings"], scaling.get("factor")
    if kind == "default":
        return plain, 1.0, 1.0
    if kind == "linear":
        return [f / factor for f in plain], 1.0, 1.0
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original, scaled = scaling["original_max_position_embeddings"], []
        for f in plain:
            wavelength = 2 * math.pi / f
            if wavelength < original / high:
                scaled.append(f)
            elif wavelength > original / low:
                scaled.append(f / factor)
            else:
                smooth = (original / wavelength - low) / (high - low)
                scaled.append((1 - smooth) * f / factor + smooth * f)
        return scaled, 1.0, 1.0
    attention = scaling["attention_factor"]
    everywhere = 1.0
    if "qk_rope_head_dim" in config and scaling.get("mscale_all_dim"):
        mscale = scaling["mscale_all_dim"]
        everywhere = (0.1 * mscale * math.log(factor) + 1) ** 2 if factor > 1 else 1.0
    if kind == "longrope":
        # One list up to the original length, one beyond: they must not differ.
        assert scaling["long_factor"] == scaling["short_factor"]
        inv_freq = [f / by for f, by in zip(plain, scaling["long_factor"], strict=True)]
        return inv_freq, attention, everywhere
    assert kind == "yarn"
    original = scaling["original_max_position_embeddings"]
    factor = longest / original  # whatever `factor` says
    ends = [
        dim * math.log(original / (cycles * 2 * math.pi)) / (2 * math.log(base))
        for cycles in (scaling["beta_fast"], scaling["beta_slow"])
    ]
    low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), dim - 1)
    high = high + 0.001 if low == high else high
    scaled = []
    for i, f in enumerate(plain):
        share = 1 - min(max((i - low) / (high - low), 0), 1)
        scaled.append(f / factor * (1 - share) + f * share)
    return scaled, attention, everywhere


# Version 4 does not have mellum, and has other names for two bases, or reads GPT-NeoX's own.
_OTHER_NAMES = {"mellum", "olmo3", "gpt_neox", "gemma3_text"}
OLD = [name for name in CASES if CASES[name][0] not in _OTHER_NAMES]
MORE = {
    "p-rope": changed(PLAIN, "p_rope(base=500,rotary_fraction=0.5)"),
    "ntk by parts": changed(PLAIN, "ntk_by_parts(base=500,factor=4,original_context_length=24)"),
    "no series": changed(PLAIN, "explicit(values=(.01,.9,.31,.2,1.1,.05,.013,.4))"),
    "scaled base": changed(PLAIN, "ntk_fixed(base=500,factor=4)"),
    "untruncated yarn": changed(
        PLAIN, "yarn(base=500,factor=4,original_context_length=12,truncate=False)"
    ),
}


@pytest.mark.parametrize("name", [*OLD, *MORE])
def test_version_4_reads_the_same_vector(name):
    model = MORE[name] if name in MORE else CASES[name][2]
    config = make_config(choose_architecture(model, CONTEXT), model, CONTEXT)
    inv_freq, attention, everywhere = version_4(config)
    table = model.position_table(CONTEXT)
    expected = table.inv_freq[0, 0, : len(inv_freq)]  # of smollm3 the first layer rotates
    np.testing.assert_allclose(inv_freq, expected, rtol=1e-12, atol=1e-25)
    assert attention**2 * everywhere == pytest.approx(table.logit_scale[0, 0], rel=1e-12)
    if model.mla is not None:
        rest = table.unrotated_logit_scale[0, 0]
        assert everywhere == pytest.approx(rest, rel=1e-12)


@pytest.mark.parametrize(
    "written",
    [
        "rope(base=500)",
        "position_interpolation(base=500,factor=4)",
        "llama3(base=500000.0,factor=8,original_context_length=64)",
        "yarn(base=500,factor=4,original_context_length=12)",
        "yarn(base=500,factor=4,original_context_length=12,mscale=0.0)",
    ],
)
def test_variants_are_imported_by_name(written):
    rotary, head = parse(written), HfHead(16, CONTEXT)
    rope = make_rope_parameters(rotary, head)
    if "mscale" in written:  # its temperature is none of the default's
        assert rope["attention_factor"] == 1.0
    assert read_variant(rope, head, CONTEXT, "x") == rotary


def test_dynamic_is_imported_with_factor_1():
    rope, head = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 1.0}, HfHead(16, CONTEXT)
    expected = parse(f"dynamic_ntk_aware(base=500,original_context_length={CONTEXT})")
    assert all(read_variant(rope, head, n, "x") == expected for n in (CONTEXT, 4 * CONTEXT))
    with pytest.raises(ValueError, match="is not imported; only factor=1"):
        read_variant(rope | {"factor": 2.0}, head, CONTEXT, "x")


def test_other_vectors_are_recorded():
    rotary, head = parse("explicit(values=(1.5,0.5,0.1,0.0))"), HfHead(8, CONTEXT)
    rope = make_rope_parameters(rotary, head)
    result = read_variant(rope, head, CONTEXT, "a model's config.json")
    assert isinstance(result, Recorded) and result.name == "a model's config.json"
    np.testing.assert_allclose(result.inv_freq(8), [1.5, 0.5, 0.1, 0.0], rtol=1e-12)
