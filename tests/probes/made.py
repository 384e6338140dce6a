"""Captures made by hand, of one layer: what its queries and keys are is known."""

import numpy as np

from configs import find_config
from configs.changes import change
from model import rotary as rotary_lib
from model.transformer import Inside
from probes.inside import Capture


def captured(
    q_BTNH: np.ndarray, k_BSNH: np.ndarray, *, rotary: str = "nope", window: int | None = None
) -> Capture:
    """A capture that holds these queries and keys before rotation, as many heads of both."""
    B, T, N, H = q_BTNH.shape
    sizes = dict(num_layers=1, num_heads=N, num_kv_heads=N, head_dim=H)
    model = sizes | dict(rotary=rotary_lib.parse_pattern(rotary), window=window)
    q_LBTNH, k_LBSKH = (each[None].astype(np.float32) for each in (q_BTNH, k_BSNH))
    return Capture(
        config=change(find_config("tiny"), model=model).model,
        context_length=T,
        tokens_BT=np.zeros((B, T), np.int32),
        positions_BT=np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        segment_ids_BT=np.ones((B, T), np.int32),
        inside=Inside(q_LBTNH, k_LBSKH, k_LBSKH, None),
        hidden_BTD=None,  # pyright: ignore[reportArgumentType]
        params={},
    )
