"""Attention over packed rows, behind one function; a kernel each in the other files.

To read what attention is, read `xla.reference`: one softmax over whole rows, ten lines, and what
`check` holds every kernel to before training. The others compute the same, faster:

- `splash`: on a TPU, for up to 65,536 tokens of a row on a device.
- `cudnn`: on an NVIDIA GPU, in bfloat16, where a mask `[B, 1, T, T]` fits. Skips keys after a block
  of queries; windows and documents are masked.
- `ring`: wherever `sequence` splits rows over devices; `splash` or `blocks` on each KV shard.
- `xla`: on a CPU, and for what is left; `blocks` in long rows.

`splash` and `blocks` skip the blocks of keys that the block mask rules out: later ones, those
outside the window, those of other documents. `matmul` is the layers' product, with a backward pass
of its own for CPUs.
"""

from model.kernels.choice import Choice, attention, choose, of_model
from model.kernels.conformance import check
from model.kernels.xla import reference

__all__ = ["Choice", "attention", "check", "choose", "of_model", "reference"]
