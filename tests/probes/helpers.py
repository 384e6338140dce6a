"""Captures made by hand."""

import numpy as np

from configs import find_config
from configs.changes import change
from model import rotary as rotary_lib
from model.transformer import Inside
from probes.inside import Capture


def holding(
    q_BTNR: np.ndarray, k_BTNR: np.ndarray, rotary: str, window: int | None = None
) -> Capture:
    """One layer whose queries and keys before rotation are these, each pair a complex number."""
    B, T, N, R = q_BTNR.shape
    sizes = dict(num_layers=1, num_heads=N, num_kv_heads=N, head_dim=2 * R)
    model = sizes | dict(rotary=rotary_lib.parse_pattern(rotary), window=window)
    q_LBTNH, k_LBTNH = (
        np.concatenate([x.real, x.imag], axis=-1)[None].astype(np.float32) for x in (q_BTNR, k_BTNR)
    )
    return Capture(
        config=change(find_config("tiny"), model=model).model,
        context_length=T,
        tokens_BT=np.zeros((B, T), np.int32),
        positions_BT=np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        segment_ids_BT=np.ones((B, T), np.int32),
        inside=Inside(q_LBTNH, k_LBTNH, k_LBTNH, None),
        hidden_BTD=None,  # pyright: ignore[reportArgumentType]
        params={},
    )
