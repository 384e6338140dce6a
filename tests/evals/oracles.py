"""Models that only copy: the same thing in numpy and as parameters of our transformer."""

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.data.task import Document
from ropewalk.model import loss, transformer
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model


def copied(tokens: np.ndarray) -> np.ndarray:
    """Return what followed the longest earlier match of the text so far, the latest of equals.

    Returns:
      int `[n]`: the expectation at each position; -1 where its id is new.
    """
    expected = np.full(len(tokens), -1)
    matched = np.zeros(len(tokens) + 1, int)  # ids before and at j that equal those at i
    for i, token in enumerate(tokens):
        matched[1:] = np.where(tokens == token, matched[:-1] + 1, 0)
        earlier = matched[1 : i + 1]
        if i and earlier.max():
            j = i - 1 - int(earlier[::-1].argmax())
            expected[i] = tokens[j + 1]
    return expected


def exact_matches(documents: list[Document]) -> np.ndarray:
    """bool `[answers]`: whether `copied` gives every id of each answer."""
    right = []
    for document in documents:
        hits = copied(document.tokens)[:-1] == document.tokens[1:]
        right += [hits[start - 1 : start - 1 + count].all() for start, count, _ in document.answers]
    return np.array(right)


def copying_model(used: np.ndarray, vocab_size: int, num_copies: int) -> tuple[ModelConfig, dict]:
    """Parameters, set by hand, that do what `copied` does with the last 2^num_copies ids.

    A residual stream is a 1, then 2^num_copies slots of one-hot ids (this one, the one before, ...)
    and a slot for the answer. Layer l copies the first 2^l slots of the position 2^l earlier into
    the next 2^l: rotation makes one distance the best. The last layer does not rotate; its keys are
    the previous position's, a match in slot s counts 2^-s, so that the longest match wins.

    Args:
      used: the ids that occur; each gets a one-hot code.
      vocab_size: of the model.
      num_copies: layers before the last.
    """
    E, S = len(used), 2**num_copies
    D, H, L = 1 + (S + 1) * E, S * E + S * E % 2, num_copies + 1
    config = small_model(
        vocab_size=vocab_size, embed_dim=D, num_layers=L, head_dim=H, mlp_dim=1,
        rotary=(*[Rope(base=1e4)] * num_copies, Nope()) if num_copies else Nope(),
        tie_embeddings=False, norm_epsilon=1e-12, shift_keys=True,
    )  # fmt: skip
    codes = np.zeros((vocab_size, E), np.float32)
    codes[used] = np.eye(E)

    query, key, value = np.zeros((3, L, D, 1, H), np.float32)
    out = np.zeros((L, 1, H, D), np.float32)
    norm = np.ones((L, D), np.float32)
    inv_freq = Rope(base=1e4).frequencies(H)
    for layer in range(num_copies):
        lag = 2**layer
        # The stream holds 1 + 2^l ones, and the norm divides by their root mean square.
        norm[layer] = np.sqrt((1 + lag) / D)
        # At distance m a pair gives cos((m - lag) inv_freq): all agree at m = lag alone.
        query[layer, 0, 0] = 100 * np.concatenate([np.cos(lag * inv_freq), -np.sin(lag * inv_freq)])
        key[layer, 0, 0, : H // 2] = 1
        for i in range(lag * E):
            value[layer, 1 + i, 0, i] = out[layer, 0, i, 1 + lag * E + i] = 1
    norm[-1] = np.sqrt((1 + S) / D)
    slot = np.arange(S * E) // E
    query[-1, 1 + np.arange(S * E), 0, np.arange(S * E)] = 64 * 2.0 ** (S - slot) * np.sqrt(H)
    key[-1, 1 + np.arange(S * E), 0, np.arange(S * E)] = 1
    value[-1, 1 + np.arange(E), 0, np.arange(E)] = 1
    out[-1, 0, np.arange(E), D - E + np.arange(E)] = 1

    mlp = {"gate": (L, D, 1), "up": (L, D, 1), "down": (L, 1, D)}
    params = {
        "embedding": np.concatenate(
            [np.ones((vocab_size, 1)), codes, np.zeros((vocab_size, S * E))], 1
        ),
        "blocks": {
            "attention_norm": {"scale": norm},
            "attention": {
                "query": query,
                "key": key,
                "value": value,
                "out": out,
                # Sigmoids of these: keys of the last layer alone are the previous position's.
                "shift": np.array([[-100.0]] * num_copies + [[100.0]]),
            },
            "mlp_norm": {"scale": np.ones((L, D))},
            "mlp": {name: np.zeros(shape) for name, shape in mlp.items()},
        },
        "final_norm": {"scale": np.ones(D)},
        # So large that nothing but the most likely id is likely.
        "output": np.concatenate([np.zeros((vocab_size, D - E)), 9 * codes], 1),
    }
    return config, jax.tree.map(lambda leaf: leaf.astype(np.float32), params)


def stand_in_for_the_model(monkeypatch):
    """In place of the model: after an id it expects what followed that id the last time.

    It sees as far as the layers' window, if they have one. Evaluate it with a config of its own:
    jit remembers what it traced for the others.
    """

    def hidden(config, params, table, tokens_BT, positions_BT, segment_ids_BT):
        T = tokens_BT.shape[1]
        distance_TS = jnp.arange(T)[:, None] - jnp.arange(T)
        # What followed an id is distance - 1 away, and the window counts the query itself.
        seen_TS = (distance_TS > 0) & (distance_TS - 1 < table.window[0])
        seen_BTS = (tokens_BT[:, :, None] == tokens_BT[:, None, :]) & seen_TS
        latest_BT = jnp.max(jnp.where(seen_BTS, jnp.arange(T), -1), axis=-1)
        following_BT = jnp.take_along_axis(tokens_BT, latest_BT + 1, axis=1)
        return jnp.where(latest_BT < 0, -1, following_BT)

    def token_scores(config, params, expected_BT, targets_BT):
        correct_BT = expected_BT == targets_BT
        return loss.TokenScores(9.0 * ~correct_BT, correct_BT, 99 * ~correct_BT)

    monkeypatch.setattr(transformer, "hidden", hidden)
    monkeypatch.setattr(loss, "token_scores", token_scores)
