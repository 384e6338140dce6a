"""The attention mask: which keys a query attends to.

All kernels compute this mask. `kernels.xla`, `kernels.blocks`, decoding, and the probes call these
functions; the other kernels are tested against them.
"""

import jax


def is_visible(distance, window, masked_distances: tuple[int, int] | None = None) -> jax.Array:
    """Return whether a query attends to keys of its document at these distances, bool.

    Args:
      distance: int32, tokens from the key to the query; negative for keys after the query.
      window: int32 scalar, number of tokens that a query attends to, itself included.
      masked_distances: first and last of the distances that are hidden; None hides none.
    """
    visible = (distance >= 0) & (distance < window)
    if masked_distances is not None:
        low, high = masked_distances
        visible &= (distance < low) | (distance > high)
    return visible


def attention_mask(
    indices_T,
    key_indices_S,
    ids_BT,
    key_ids_BS,
    window,
    masked_distances: tuple[int, int] | None = None,
) -> jax.Array:
    """Return which keys each query attends to, bool `[B, T, S]`.

    Args:
      indices_T, key_indices_S: int32, indices of the queries and of the keys within the row.
      ids_BT, key_ids_BS: int32, their segment ids. Attention never crosses segments.
      window, masked_distances: see `is_visible`.
    """
    visible_TS = is_visible(indices_T[:, None] - key_indices_S, window, masked_distances)
    return visible_TS & (ids_BT[:, :, None] == key_ids_BS[:, None, :])
