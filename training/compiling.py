"""Compiler options per chip, used by training and by `tpu.aot`.

They are passed with each program (`compiler_options` of `jax.jit`), so they need no environment
variable, and `tpu.aot` estimates the same step that training runs.
"""

import os

# XLA may turn a product with a gathered weight into a ring of smaller products ("windowed einsum").
# On a slice without a torus this costs more than the gather that it hides, and on every slice
# each part writes the full product to HBM. This threshold, in MiB, is larger than any product and
# disables the transformation. Google's recipes for v6e set it
# (github.com/AI-Hypercomputer/tpu-recipes, `no_collective_matmul`).
_GATHER = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}

OPTIONS: dict[str, dict[str, str]] = dict.fromkeys(
    ("TPU v4", "TPU v5 lite", "TPU v5", "TPU v6 lite"), _GATHER
)


def options(device_kind: str) -> dict[str, str]:
    """Return the options for a chip, by its JAX device kind, except those in LIBTPU_INIT_ARGS."""
    libtpu_args = os.environ.get("LIBTPU_INIT_ARGS", "")
    return {k: v for k, v in OPTIONS.get(device_kind, {}).items() if f"--{k}" not in libtpu_args}


def describe(device_kind: str) -> str | None:
    """Return a line that describes the compiler options of a chip; None if there are none."""
    flags_by_name = options(device_kind)
    flags = " ".join(f"--{name}={value}" for name, value in flags_by_name.items())
    return f"compiler: as with LIBTPU_INIT_ARGS={flags}" if flags_by_name else None
