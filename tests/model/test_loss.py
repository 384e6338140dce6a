"""Loss and ranks by hand, in chunks and whole, and never a `[B, T, V]` when V is large."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.model import axes, transformer
from ropewalk.model import loss as loss_lib
from ropewalk.model.config import ModelConfig
from ropewalk.model.loss import token_scores, total_nll
from ropewalk.training.step import loss_fn, split_batch
from tests.models import small_model, token_nll

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


@pytest.mark.parametrize("function", [token_scores, total_nll])
def test_a_large_vocabulary_never_meets_the_whole_batch(function):
    """B, T, V = 4, 1024, 125696 would be 2 GB of float32; no buffer may pass the limit."""
    config = dataclasses.replace(CONFIG, vocab_size=125_696, embed_dim=8)
    params = {"output": jax.ShapeDtypeStruct((125_696, 8), jnp.float32)}
    hidden_BTD = jax.ShapeDtypeStruct((4, 1024, 8), jnp.float32)
    targets_BT = jax.ShapeDtypeStruct((4, 1024), jnp.int32)

    def total(params, hidden_BTD, targets_BT):
        if function is total_nll:
            return function(config, params, hidden_BTD, targets_BT, jnp.ones((4, 1024)), 1.0)
        return jnp.sum(function(config, params, hidden_BTD, targets_BT).nll_BT)

    gradient = total if function is token_scores else jax.grad(total, argnums=(0, 1))
    memory = jax.jit(gradient).lower(params, hidden_BTD, targets_BT).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 3 * 4 * loss_lib.MAX_LOGITS < 4 * 4 * 1024 * 125_696


def gradients(config: ModelConfig, function, params, hidden_BTD, targets_BT):
    """The loss of half of the tokens over 7, and its gradients in float32."""
    weights_BT = jnp.asarray(np.arange(targets_BT.size).reshape(targets_BT.shape) % 3 > 0)

    def total(params, hidden_BTD):
        hidden_BTD = jnp.asarray(hidden_BTD, config.compute_dtype)
        if function is total_nll:
            return total_nll(config, params, hidden_BTD, targets_BT, 1.0 * weights_BT, 7.0)
        return (token_nll(config, params, hidden_BTD, targets_BT) * weights_BT).sum() / 7

    arguments = params["output"], params["embedding"], hidden_BTD
    pack = lambda output, embedding, x: total(dict(output=output, embedding=embedding), x)  # noqa: E731
    return jax.device_get(jax.jit(jax.value_and_grad(pack, (0, 1, 2)))(*arguments))


@pytest.mark.parametrize("chunk, tied", [(None, False), (4, True), (5, False)])
def test_one_pass_has_the_gradients_of_the_losses_of_tokens(chunk, tied):
    """float32 up to 1e-6 of each maximum; in bfloat16 the matrix errs less, hidden states more.

    One minus a target's probability rounds to 8 bits, which matters less in larger vocabularies.
    """
    config = small_model(
        vocab_size=96, embed_dim=32, head_dim=8, tie_embeddings=tied, loss_chunk=chunk,
        compute_dtype="float32",
    )  # fmt: skip
    case = random_case(config, 3, 12)
    loss, exact = gradients(config, token_nll, *case)
    one_pass, ours = gradients(config, total_nll, *case)
    assert one_pass == pytest.approx(loss, rel=1e-6)
    for x, y in zip(ours, exact, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6 * np.abs(y).max(), rtol=0)
    rounded = dataclasses.replace(config, compute_dtype="bfloat16")
    errors = [
        [np.linalg.norm(x - y) for x, y in zip(gradients(rounded, f, *case)[1], exact, strict=True)]
        for f in (total_nll, token_nll)
    ]
    np.testing.assert_array_less(errors[0], [1, 1, 1.25] * np.array(errors[1]) + 1e-9)


@pytest.mark.parametrize(
    "tied, chunk, accumulate",
    [(True, None, 1), pytest.param(False, 5, 2, marks=pytest.mark.long), (True, 4, 4)],
)
def test_a_step_on_packed_documents_has_the_gradients_of_their_tokens(tied, chunk, accumulate):
    """Two members; no loss across borders and in padding; six ids that no text has."""
    config = small_model(
        vocab_size=96, embed_dim=32, head_dim=8, tie_embeddings=tied, loss_chunk=chunk,
        compute_dtype="float32",
    )  # fmt: skip
    random = np.random.default_rng(0)
    tokens, targets = random.integers(0, 90, size=(2, 4, 16)).astype(np.int32)
    ids = np.repeat([[1, 2, 0], [1, 2, 3], [1, 1, 1], [1, 0, 0]], [3, 9, 4], axis=1)
    mask = (ids > 0) & np.pad(ids[:, 1:] == ids[:, :-1], ((0, 0), (0, 1)))
    starts = np.pad(ids[:, 1:] != ids[:, :-1], ((0, 0), (1, 0))) * np.arange(16)
    positions = (np.arange(16) - np.maximum.accumulate(starts, axis=1)).astype(np.int32)
    batch = dict(tokens=tokens, targets=targets, positions=positions, segment_ids=ids)
    batch["loss_mask"] = mask.astype(np.float32)
    table, divisor = config.position_table(16), np.float32(mask.sum())

    def of_tokens(params):
        hidden_BTD = transformer.hidden(config, params, table, tokens, positions, ids)
        return (token_nll(config, params, hidden_BTD, targets) * mask).sum() / divisor

    def of_step(params):
        parts = split_batch(batch, accumulate)
        rows = (jax.tree.map(lambda x, i=i: x[i], parts) for i in range(accumulate))
        return sum(loss_fn(params, config, table, x, divisor) for x in rows)

    params = jax.vmap(lambda seed: transformer.init(config, seed))(np.arange(2))
    ours, exact = (
        jax.device_get(jax.jit(jax.vmap(jax.value_and_grad(f)))(params))
        for f in (of_step, of_tokens)
    )
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6 * np.abs(y).max(), rtol=0)
    gradients = ours[1]
    assert (np.abs(gradients["embedding" if tied else "output"][:, 90:]).sum(-1) > 0).all()
    assert tied or not gradients["embedding"][:, 90:].any()


MESHES = """
import json
import jax, jax.numpy as jnp, numpy as np
from ropewalk.model import loss
from ropewalk.model.axes import MESH_AXES
from tests.models import small_model

config = small_model(vocab_size=96, embed_dim=32, head_dim=8, tie_embeddings=False, loss_chunk=4)
random = np.random.default_rng(0)
output = random.normal(size=(2, 96, 32)).astype(np.float32)
hidden = random.normal(size=(2, 4, 32, 32)).astype(np.float32)
targets = random.integers(0, 96, (4, 32)).astype(np.int32)
mask = (random.random((4, 32)) < 0.7).astype(np.float32)

def gradients(output, hidden):
    def total(output, hidden):
        return loss.total_nll(config, {"output": output}, hidden, targets, mask, mask.sum())
    return jax.value_and_grad(total, (0, 1))(output, hidden)

def of_members(**sizes):
    shape = [sizes.get(axis, 1) for axis in MESH_AXES]
    auto = (jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    mesh = jax.make_mesh(shape, MESH_AXES, auto, devices=jax.devices()[: int(np.prod(shape))])
    with jax.set_mesh(mesh):
        mapped = jax.jit(jax.vmap(gradients, spmd_axis_name="sweep"))
        return jax.tree.leaves(jax.device_get(mapped(output, hidden)))

exact = of_members()
meshes = [dict(data=2, fsdp=2, tensor=2), dict(fsdp=2, sequence=2, tensor=2), dict(tensor=8),
          dict(sweep=2, data=2, sequence=2), dict(sweep=2, fsdp=2, tensor=2)]
errors = [[float(np.abs(x - y).max() / np.abs(y).max()) for x, y in zip(of_members(**m), exact)]
          for m in meshes]
print(json.dumps(errors))
"""


@pytest.mark.long
def test_meshes_have_the_gradients_of_one_device(run_script):
    """Two members with rows, features, tokens and ids over eight devices."""
    lines = run_script("-c", MESHES, JAX_NUM_CPU_DEVICES="8").stdout.splitlines()
    assert np.max(json.loads(lines[-1])) < 1e-6
