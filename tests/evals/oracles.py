"""A model that only copies, as parameters of our transformer."""

import jax
import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.model.config import ModelConfig
from tests.models import small_model


def copying_model(tokenizer: Tokenizer) -> tuple[ModelConfig, dict]:
    """Parameters, set by hand, of one head that expects what followed the same id before.

    A residual stream is a 1, a slot for the one-hot id and a slot for the answer. Keys are the
    previous position's. The tokenizer's keys and values have one-hot codes, and other ids none.
    """
    used, vocab_size = np.concatenate([tokenizer.keys, tokenizer.values]), tokenizer.vocab_size
    E = len(used)
    D, H, place = 1 + 2 * E, E + E % 2, np.arange(E)
    config = small_model(
        vocab_size=vocab_size, embed_dim=D, head_dim=H, mlp_dim=1, tie_embeddings=False,
        norm_epsilon=1e-12, shift_keys=True,
    )  # fmt: skip
    codes = np.zeros((vocab_size, E), np.float32)
    codes[used] = np.eye(E)
    query, key, value = np.zeros((3, 1, D, 1, H), np.float32)
    out = np.zeros((1, 1, H, D), np.float32)
    query[0, 1 + place, 0, place] = 128 * np.sqrt(H)
    key[0, 1 + place, 0, place] = value[0, 1 + place, 0, place] = 1
    out[0, 0, place, 1 + E + place] = 1
    mlp = {"gate": (1, D, 1), "up": (1, D, 1), "down": (1, 1, D)}
    shift = np.array([[100.0]])  # its sigmoid is 1: keys are the previous position's
    ones, none = np.ones((vocab_size, 1)), np.zeros((vocab_size, E))
    params = {
        "embedding": np.hstack([ones, codes, none]),
        "blocks": {
            # The stream holds two ones, and the norm divides by their root mean square.
            "attention_norm": {"scale": np.full((1, D), np.sqrt(2 / D))},
            "attention": dict(query=query, key=key, value=value, out=out, shift=shift),
            "mlp_norm": {"scale": np.ones((1, D))},
            "mlp": {name: np.zeros(shape) for name, shape in mlp.items()},
        },
        "final_norm": {"scale": np.ones(D)},
        # So large that nothing but the most likely id is likely.
        "output": np.hstack([0 * ones, none, 9 * codes]),
    }
    return config, jax.tree.map(lambda leaf: leaf.astype(np.float32), params)
