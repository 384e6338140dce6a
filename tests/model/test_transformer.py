"""The whole network: who influences whom, layers in order, precision, recomputation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropewalk.model import transformer
from ropewalk.model.rotary.rope import Rope
from tests.interop.weights_helpers import noise
from tests.models import small_model, token_nll

pytestmark = pytest.mark.slow

CONFIG = small_model(num_layers=3, num_heads=4, num_kv_heads=2, mlp_dim=24, rotary=Rope(base=100.0))
EVERY_OPTION = dataclasses.replace(
    CONFIG, qk_norm=True, shift_keys=True, align_query_key=True, tie_embeddings=False,
    qk_norm_across_heads=True, qkv_bias=True, out_bias=True, mlp_bias=True, mlp_gate=False,
    activation="gelu", norm="layer", norm_position="both", parallel_residual=True,
    scale_embedding=True, scale_dim=5,
    rotary=Rope(base=100.0, log_n="train", rotary_fraction=0.5),
)  # fmt: skip
CONTEXT = 24

hidden = jax.jit(transformer.hidden, static_argnums=0)


def run(config, params, tokens_BT, positions_BT=None, segment_ids_BT=None):
    tokens_BT = jnp.asarray(tokens_BT, jnp.int32)
    if positions_BT is None:
        positions_BT = jnp.tile(jnp.arange(tokens_BT.shape[1]), (len(tokens_BT), 1))
    if segment_ids_BT is None:
        segment_ids_BT = jnp.ones_like(tokens_BT)
    table = config.position_table(CONTEXT)
    return hidden(config, params, table, tokens_BT, positions_BT, segment_ids_BT)


WINDOW = dataclasses.replace(CONFIG, window=3)


def influence(config, positions_T, segments_T) -> np.ndarray:
    """1 where the output at t (row) has any gradient to the token at s (column).

    Every token is another id, so a row of the embedding's gradient is a position's.
    """
    params = noise(config)
    T = len(positions_T)
    tokens_BT = np.arange(T)[None]

    def outputs(embedding):
        changed = {**params, "embedding": embedding}
        return run(config, changed, tokens_BT, positions_T[None], segments_T[None])[0].sum(-1)

    gradient_TVD = jax.jit(jax.jacrev(outputs))(params["embedding"])
    return (np.abs(gradient_TVD[:, :T]).max(-1) > 0).astype(int)


def test_no_token_sees_a_later_one_or_another_document():
    """Exactly zero gradient above the diagonal and between documents, none lost below it."""
    segments_T = np.repeat([1, 2, 0], [7, 5, 4])
    positions_T = np.concatenate([np.arange(7), np.arange(5), np.zeros(4, int)])
    expected_TS = np.tril(segments_T[:, None] == segments_T).astype(int)
    np.testing.assert_array_equal(influence(EVERY_OPTION, positions_T, segments_T), expected_TS)
    # Three layers that see 3 tokens each (2 back) reach 6 back, and no further.
    alone_TS = influence(WINDOW, np.arange(12), np.ones(12, int))
    np.testing.assert_array_equal(alone_TS, np.tri(12, dtype=int) - np.tri(12, k=-7, dtype=int))


def test_a_module_holds_parameters_and_nothing_else():
    """A table kept as state would be saved with the checkpoint, and go stale."""
    model = nnx.eval_shape(lambda: transformer.Transformer(EVERY_OPTION, rngs=nnx.Rngs(params=0)))
    state = nnx.state(model)
    assert {type(variable) for _, variable in nnx.to_flat_state(state)} == {nnx.Param}
    assert jax.tree.structure(nnx.to_pure_dict(state)) == jax.tree.structure(
        transformer.abstract_params(EVERY_OPTION)
    )


def loss(config, params, length=20):
    random = np.random.default_rng(2)
    tokens_BT, targets_BT = random.integers(0, 64, size=(2, 2, length))
    return token_nll(config, params, run(config, params, tokens_BT), targets_BT).mean()


@functools.cache  # compiled once for the tests below
def loss_and_gradients(**changes):
    config = dataclasses.replace(CONFIG, **changes)
    return jax.jit(jax.value_and_grad(loss, 1), static_argnums=0)(config, noise(config))


@pytest.mark.long
@pytest.mark.parametrize(
    ("remat", "unroll"),
    [("dots", False), ("qkv", False), ("full", True), ("offload_qkv", False), ("none", True)],
)
def test_recomputation_and_unrolling_change_no_number(remat, unroll):
    """Gradients have the shapes of parameters, so that checkpoints fit both."""
    trees = loss_and_gradients(remat=remat, unroll=unroll), loss_and_gradients()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), *trees)


def saved_per_layer(remat: str, length: int = 20) -> list[tuple[tuple[int, ...], str]]:
    """Shape and memory of what the forward pass stacks over layers for the backward one."""
    config = dataclasses.replace(CONFIG, num_layers=7, remat=remat)
    params = transformer.abstract_params(config)
    jaxpr = jax.make_jaxpr(jax.grad(lambda p: loss(config, p, length)))(params)
    scans = (e for e in equations(jaxpr.jaxpr) if e.primitive.name == "scan")
    forward = next(e for e in scans if e.params["length"] == 7)
    stacked = (v.aval for v in forward.outvars if v.aval.shape[:1] == (7,) and v.aval.ndim > 1)
    return [(aval.shape, str(aval.memory_space)) for aval in stacked]


def equations(jaxpr):
    """Those of `jaxpr` and of all that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr"),
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


@pytest.mark.parametrize("remat", ["dots", "qkv", "full"])
def test_attention_runs_forward_once(remat):
    """Its output and log-sum-exp are saved, as its backward pass over a long row reads both."""
    saved = {shape for shape, _ in saved_per_layer(remat, length=600)}
    assert {(7, 2, 600, 4, 8), (7, 2, 600, 4)} <= saved


def test_recomputation_saves_what_its_name_says():
    """L = 7, B = 2, T = 20, D = 16, F = 24, N = 4, K = 2, H = 8.

    Attention has weights `[.., T * G, S]`.
    """
    attention = ((7, 2, 2, 40, 20), "MemorySpace.Device")
    block_input, mlp_hidden = (((7, 2, 20, n), "MemorySpace.Device") for n in (16, 24))
    none, dots, qkv, full = (set(saved_per_layer(x)) for x in ("none", "dots", "qkv", "full"))
    assert attention in none and mlp_hidden in none
    assert attention not in dots and mlp_hidden in dots
    assert full == {block_input}
    heads = {(7, 2, 20, 4, 8), (7, 2, 20, 2, 8)}
    assert qkv == {block_input, *((shape, "MemorySpace.Device") for shape in heads)}
    # Attention's output is as wide as the input.
    widths = [(16,), (4, 8), (2, 8), (2, 8)]
    on_host = [((7, 2, 20, *width), "MemorySpace.Host") for width in widths]
    assert saved_per_layer("offload") == on_host[:1]
    assert sorted(saved_per_layer("offload_qkv_only")) == sorted(on_host)
    assert sorted(saved_per_layer("offload_qkv")) == sorted([*on_host, on_host[0]])


@pytest.mark.long
def test_bfloat16_is_for_products_only():
    config = dataclasses.replace(EVERY_OPTION, compute_dtype="bfloat16")
    params, tokens_BT = transformer.abstract_params(config), np.zeros((2, 20), np.int32)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.float32.dtype}
    hidden_BTD = jax.eval_shape(lambda params: run(config, params, tokens_BT), params)
    assert hidden_BTD.dtype == jnp.bfloat16
    unembed = functools.partial(transformer.unembed, config)
    assert jax.eval_shape(unembed, params, hidden_BTD).dtype == jnp.float32
    ours, gradients = loss_and_gradients(compute_dtype="bfloat16")
    assert {x.dtype for x in jax.tree.leaves(gradients)} == {jnp.float32.dtype}
    expected_loss, expected = loss_and_gradients()
    assert float(ours) == pytest.approx(float(expected_loss), rel=0.02)
    # Gradients point the same way.
    for x, y in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        assert (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()) > 0.97
