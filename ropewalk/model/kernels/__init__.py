"""Attention over packed rows, behind one function; every other file is one kernel.

`xla.reference` defines attention: one softmax over full rows, ten lines. `check` compares a kernel
with it before training. The others compute the same, faster:

- `splash`: on a TPU, for up to 65,536 tokens of a row on a device.
- `hopper`: on an NVIDIA H100 or H200 with the extra `tokamax`, for heads up to 128 wide.
- `flash`: on other NVIDIA GPUs of compute capability 8.0 or more, for heads up to 256 wide.
- `ring`: wherever `sequence` splits rows over devices; one of the others on each KV shard.
- `xla`: on a CPU, and in all other cases; `blocks` in long rows.

`splash`, `flash`, and `blocks` skip the key blocks that the block mask excludes: later blocks,
blocks outside the window, and other documents. `matmul` is the layers' matrix product, with a
custom backward pass for CPUs.
"""

from ropewalk.model.kernels.choice import Choice, attention, choose, choose_for_model
from ropewalk.model.kernels.conformance import check

__all__ = ["Choice", "attention", "check", "choose", "choose_for_model"]
