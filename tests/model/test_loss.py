"""Loss and ranks by hand, in chunks and whole, and never a `[B, T, V]` when V is large."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.model import axes
from ropewalk.model import loss as loss_lib
from ropewalk.model.config import ModelConfig
from ropewalk.model.loss import token_nll, token_scores
from tests.models import small_model

CONFIG = small_model(vocab_size=5, embed_dim=4, head_dim=2, mlp_dim=4, tie_embeddings=False)


def logits_as_hidden(logits_BTV):
    """Hidden states and parameters whose logits are exactly these: the output is the identity."""
    logits_BTV = jnp.asarray(logits_BTV, jnp.float32)
    return {"output": jnp.eye(logits_BTV.shape[-1])}, logits_BTV


@pytest.mark.parametrize(
    "logits_V, targets_T, ranks_T",
    [
        ([0.0, 1.0, 2.0, 3.0, 0.0], [3, 2, 1, 0, 4], [0, 1, 2, 3, 4]),
        # Among equal logits the lowest id has the best rank, and each next id the next rank.
        ([1.0, 1.0, 0.0, 1.0, 1.0], [0, 1, 2, 3, 4], [0, 1, 4, 2, 3]),
    ],
)
def test_loss_and_rank_by_hand(logits_V, targets_T, ranks_T):
    case = *logits_as_hidden([[logits_V] * 5]), jnp.array([targets_T])
    scores = token_scores(CONFIG, *case)
    expected = np.log(np.exp(logits_V).sum()) - np.take(logits_V, targets_T)
    np.testing.assert_allclose(scores.nll_BT[0], expected, atol=1e-5)
    np.testing.assert_array_equal(scores.rank_BT[0], ranks_T)
    np.testing.assert_array_equal(scores.correct_BT[0], np.equal(ranks_T, 0))
    assert scores.rank_BT.dtype == jnp.int32 and scores.nll_BT.dtype == jnp.float32
    np.testing.assert_allclose(token_nll(CONFIG, *case)[0], expected, atol=1e-5)


def random_case(config: ModelConfig, B: int, T: int):
    random = np.random.default_rng(0)
    V, D = config.vocab_size, config.embed_dim
    params = {"output": random.normal(size=(V, D)).astype(np.float32)}
    params["embedding"] = params["output"] + 1
    hidden_BTD = random.normal(size=(B, T, D)).astype(np.float32)
    return params, hidden_BTD, random.integers(0, V, size=(B, T)).astype(np.int32)


@functools.partial(jax.jit, static_argnums=0)
def gradients_losses_scores(config: ModelConfig, params, hidden_BTD, targets_BT):
    """Gradients of a sum that weighs every loss differently, the losses, and the scores."""
    weights_BT = jnp.cos(jnp.arange(targets_BT.size, dtype=jnp.float32)).reshape(targets_BT.shape)

    def total(params, hidden_BTD):
        nll_BT = token_nll(config, params, hidden_BTD, targets_BT)
        return (nll_BT * weights_BT).sum(), nll_BT

    gradients_losses = jax.grad(total, argnums=(0, 1), has_aux=True)(params, hidden_BTD)
    return gradients_losses, token_scores(config, params, hidden_BTD, targets_BT)


@pytest.mark.parametrize("T, chunk, tied", [(12, 1, False), (12, 5, True), (7, 5, False)])
def test_chunks_change_nothing(T, chunk, tied):
    """Single tokens, three chunks of 4, and chunks of 4 and 3."""
    unchunked = dataclasses.replace(CONFIG, vocab_size=40, embed_dim=8, tie_embeddings=tied)
    chunked = dataclasses.replace(unchunked, loss_chunk=chunk)
    case = random_case(unchunked, 3, T)
    for x, y in zip(
        jax.tree.leaves(gradients_losses_scores(chunked, *case)),
        jax.tree.leaves(gradients_losses_scores(unchunked, *case)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize(
    "kind, B, T, V, chunk, expected",
    [
        ("cpu", 2, 12, 40, 5, 4),
        ("cpu", 2, 131_071, 512, None, 65_536),  # a prime: two chunks, one token filled up
        ("NVIDIA H100", 8, 4096, 125_696, None, 64),  # 2^26 // (8 x 125,696) is 66
        ("cpu", 4096, 16, 125_696, None, 1),
        ("TPU v5", 16, 4096, 125_696, None, 256),  # 4096 tokens, 1.9 GiB of logits
        ("TPU v5 lite", 1, 4096, 125_696, None, 1024),  # 2^27 // 125,696 is 1067
        ("TPU v5", 16, 4096, 32_000, None, 256),  # more would fit, and bring nothing
    ],
)
def test_chunk_lengths_divide_the_row_or_nearly(monkeypatch, kind, B, T, V, chunk, expected):
    monkeypatch.setattr(axes, "device_kind", lambda: kind)
    config = dataclasses.replace(CONFIG, vocab_size=V, loss_chunk=chunk)
    assert loss_lib._chunk_length(config, B, T) == expected


@pytest.mark.parametrize("function", [token_nll, token_scores])
def test_a_large_vocabulary_never_meets_the_whole_batch(function):
    """B, T, V = 4, 1024, 125696 would be 2 GB of float32; no buffer may pass the limit."""
    config = dataclasses.replace(CONFIG, vocab_size=125_696, embed_dim=8)
    params = {"output": jax.ShapeDtypeStruct((125_696, 8), jnp.float32)}
    hidden_BTD = jax.ShapeDtypeStruct((4, 1024, 8), jnp.float32)
    targets_BT = jax.ShapeDtypeStruct((4, 1024), jnp.int32)

    def total(params, hidden_BTD, targets_BT):
        scores = function(config, params, hidden_BTD, targets_BT)
        return jnp.sum(scores if function is token_nll else scores.nll_BT)

    gradient = total if function is token_scores else jax.grad(total, argnums=(0, 1))
    memory = jax.jit(gradient).lower(params, hidden_BTD, targets_BT).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 3 * 4 * loss_lib.MAX_LOGITS < 4 * 4 * 1024 * 125_696
