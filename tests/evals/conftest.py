import jax.numpy as jnp
import pytest

from data import tokenizer as tokenizer_lib
from model import loss, transformer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    words = [f"{7919 * i % 2**20:x}" for i in range(4000)]
    tokenizer_lib.train([" ".join(words)], path, 640)
    return tokenizer_lib.Tokenizer(path)


@pytest.fixture
def copying_oracle(monkeypatch):
    """In place of the model: after an id it expects what followed that id the last time.

    Evaluate it with a config of its own: jit remembers what it traced for the others.
    """

    def hidden(config, params, table, tokens_BT, positions_BT, segment_ids_BT):
        T = tokens_BT.shape[1]
        seen_BTS = (tokens_BT[:, :, None] == tokens_BT[:, None, :]) & jnp.tri(T, k=-1, dtype=bool)
        latest_BT = jnp.max(jnp.where(seen_BTS, jnp.arange(T), -1), axis=-1)
        following_BT = jnp.take_along_axis(tokens_BT, latest_BT + 1, axis=1)
        return jnp.where(latest_BT < 0, -1, following_BT)

    def token_scores(config, params, expected_BT, targets_BT):
        correct_BT = expected_BT == targets_BT
        return loss.TokenScores(9.0 * ~correct_BT, correct_BT, 99 * ~correct_BT)

    monkeypatch.setattr(transformer, "hidden", hidden)
    monkeypatch.setattr(loss, "token_scores", token_scores)
