"""WHAT the model is trained on. No jax here: grain's worker processes import this package.

The batch contract, for every source: int32 `[B, T]` arrays

  tokens       ids fed to the model
  targets      the next id of the same document, 0 where there is none
  positions    place within the document, restarting at 0
  segment_ids  which document of the row, from 1; 0 is padding

float32 `[B, T]` `loss_mask` (1 where a target counts) and uint64 `[B]` `row_hash`, whose sum over
all rows consumed is the digest a checkpoint carries.
"""
