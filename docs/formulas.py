"""Compares the formulas of the papers with the rotary variants, as docs/papers.md reports."""

import math

import numpy as np

from ropewalk.model.rotary import parse
from ropewalk.theory.decay import cosine_sum

d, s, L, i = 128, 8.0, 4096, np.arange(64)
theta = 1e4 ** (-2 * i / d)
a = math.log(s) / (d / 2) ** 0.625
ramp = np.clip((L * theta / math.tau - 1) / (32 - 1), 0, 1)
base_262k, base_4m = (
    5e5 ** (math.log(length / math.tau) / math.log(8192 / math.tau)) for length in (2**18, 2**22)
)
lengths = "base=5e5,original_context_length=8192"
half = np.where(i < 32, 1e4 ** (-4.0 * i / d), 0)
formulas = {
    "rope(base=1e4)": theta,
    "position_interpolation(base=1e4,factor=8)": theta / s,
    "ntk_aware(base=1e4,factor=8)": (1e4 * s ** (d / (d - 2))) ** (-2 * i / d),
    "ntk_old(base=1e4,factor=8)": (1e4 * s) ** (-2 * i / d),
    "ntk_fixed(base=1e4,factor=8)": theta * s ** (-2 * (i + 1) / d),
    "ntk_mixed(base=1e4,factor=8)": theta / np.exp(a * (i + 1) ** 0.625),
    "ntk_by_parts(base=1e4,factor=8,original_context_length=4096)": theta * (ramp + (1 - ramp) / s),
    "method1": 5e6 ** (-2 * i / d),
    "method2": np.where(i < 44, (1e4 * s ** (128 / 88)) ** (-2 * i / d), theta / s),
    "rope(base=1e4,rotary_fraction=0.5)": half,
    f"scaled_base({lengths},target_context_length=262144)": base_262k ** (-2 * i / d),
}
for expression, expected in formulas.items():
    difference = np.abs(parse(expression).inv_freq(d) - expected) / np.maximum(expected, 1e-99)
    print(f"{expression}: {difference.max():.0e}")
print(f"bases for 262k and 4,194k: {base_262k:.2f} {base_4m:.2f}")
print("critical dimension of Llama 3:", 2 * math.ceil(d / 2 * math.log(8192 / math.tau, 5e5)))
print("last pair of ntk_aware:", parse("ntk_aware(base=1e4,factor=8)").inv_freq(d)[-1] / theta[-1])
for method in ("method1", "method2"):
    sums = cosine_sum(parse(method).inv_freq(d), np.arange(30 * 1024))
    print(method, "B_m < 0 within 15k, 30k:", *((sums[: k * 1024] < 0).sum() for k in (15, 30)))
stretch = theta / parse("ntk_mixed(base=1e4,factor=8)").inv_freq(d)
ratios = stretch / np.append(1, stretch[:-1])  # they fall
print("ntk_mixed:", *(f"{x:.4f}" for x in ratios[[0, 1, -1]]), f"product {stretch[-1]:.4f}")
print(f"least sum of (1 + cos): {cosine_sum(half, np.arange(2**20)).min():.2f}")
yarn = "yarn(base=1e4,factor=16,original_context_length=4096,mscale={})"
print("temperature:", *(f"{parse(yarn.format(m)).logit_scale:.4f}" for m in (1, 0.7)))
