"""Training data. No module here imports jax, because grain's worker processes import them.

Batches of every source have int32 `[B, T]` arrays

  tokens       ids fed to the model
  targets      the next id of the same document, 0 at its end
  positions    index within the document, from 0
  segment_ids  number of the document in the row, from 1; 0 is padding

float32 `[B, T]` `loss_mask` (1 where a target counts) and uint64 `[B]` `row_hash`, whose sum over
all consumed rows is the digest in a checkpoint.
"""
