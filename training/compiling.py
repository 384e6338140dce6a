"""What the compiler of a chip is told beyond JAX's defaults, in training and in `tpu.aot` alike.

It goes with each program (`jax.jit`'s `compiler_options`), so neither an environment variable nor
a moment before JAX starts is needed, and the step that is estimated is the step that is trained.
"""

import os

# XLA may turn a product with a gathered weight into a ring of smaller products, each behind a part
# of the weight ("windowed einsum"). On a slice whose dimensions do not close that costs more than
# the gather it hides, and on any slice every part writes the whole product to HBM. In MiB, a size
# from which it may, that no product has: Google's own recipes for v6e set it
# (github.com/AI-Hypercomputer/tpu-recipes, `no_collective_matmul`).
_GATHER = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}

OPTIONS: dict[str, dict[str, str]] = dict.fromkeys(
    ("TPU v4", "TPU v5 lite", "TPU v5", "TPU v6 lite"), _GATHER
)


def options(device_kind: str) -> dict[str, str]:
    """For a chip, by what JAX calls it; what LIBTPU_INIT_ARGS sets is left as it is set there."""
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    return {k: v for k, v in OPTIONS.get(device_kind, {}).items() if f"--{k}" not in given}


def describe(device_kind: str) -> str | None:
    """A line that says what a chip's compiler is told; None if it is nothing."""
    told = options(device_kind)
    flags = " ".join(f"--{name}={value}" for name, value in told.items())
    return f"compiler: as with LIBTPU_INIT_ARGS={flags}" if told else None
