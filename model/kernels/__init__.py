"""Attention over packed rows, behind one function; a kernel each in the other files.

- `splash`: on a TPU, for rows up to 65,536 tokens. Skips keys after a block of queries; windows
  and documents are masked.
- `cudnn`: on an NVIDIA GPU, in bfloat16, where a mask `[B, 1, T, T]` fits. Skips likewise.
- `ring`: wherever `sequence` splits rows over devices; `xla`'s blocks on keys that travel.
- `xla`: on a CPU, and for what is left. In long rows skips all blocks of keys that are not seen.
"""

from model.kernels.choice import Choice, attention, choose
from model.kernels.conformance import check

__all__ = ["Choice", "attention", "check", "choose"]
