"""What is captured, rotated and softmaxed, is what the model's own layers compute."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters.partial_eval import dce_jaxpr

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import rotary as rotary_lib
from model import transformer
from model.config import MlaConfig
from model.positions import position_table
from probes import capture

MLA = dict(
    num_kv_heads=2,
    head_dim=20,
    mla=MlaConfig(kv_lora_rank=8, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=6),
)
YARN = "yarn(base=50,factor=4,original_context_length=32)"
pytestmark = pytest.mark.usefixtures("unoptimized")
# Every part that stands between q and k and the weights.
MODELS = {
    "plain": ({}, "rope(base=30)"),
    "grouped": (dict(num_heads=4, num_kv_heads=2), "rope(base=30)"),
    "partial": ({}, "rope(base=30,rotary_fraction=0.5)"),
    "yarn": ({}, YARN),
    "layers": ({}, "[rope(base=30),nope]"),
    "heads": (dict(num_heads=4, num_kv_heads=2), "[[rope(base=10),rope(base=1000)]]"),
    "window": (dict(window=5), "rope(base=30)"),
    "masked distances": (dict(num_layers=1, masked_distances=(3, 6)), "rope(base=30)"),
    "log-n": ({}, "rope(base=30,log_n='train')"),
    "norm": (dict(qk_norm=True), "rope(base=30)"),
    "mla": (MLA, YARN),
    "mla, query latent": (
        MLA | dict(mla=dataclasses.replace(MLA["mla"], q_lora_rank=8)),
        "rope(base=30)",
    ),
    "mla, shifted": (MLA | dict(shift_keys=True), YARN),
    "shifted": (dict(shift_keys=True), "rope(base=30)"),
}
LENGTH = 40


def loaded(model: dict, rotary: str) -> LoadedRun:
    """A model whose every parameter is random, without a directory."""
    config = change(
        find_config("tiny"), model=model | dict(rotary=rotary_lib.parse_pattern(rotary))
    )
    params = transformer.init(config.model, 0)
    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(1)
    # Norms and shifts begin at 1 and 0, where a forgotten one would not be seen.
    leaves = [leaf + 0.2 * random.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return LoadedRun(RunDirectory("nowhere"), 0, config, jax.tree.unflatten(tree, leaves))


def rows(run: LoadedRun) -> dict[str, np.ndarray]:
    """Two rows, one of them of two documents."""
    random = np.random.default_rng(2)
    segment_ids_BT = np.ones((2, LENGTH), np.int32)
    segment_ids_BT[1, 25:] = 2
    positions_BT = np.tile(np.arange(LENGTH, dtype=np.int32), (2, 1))
    positions_BT[1, 25:] -= 25
    tokens_BT = random.integers(0, run.config.model.vocab_size, (2, LENGTH))
    return dict(tokens=tokens_BT, positions_BT=positions_BT, segment_ids_BT=segment_ids_BT)


@pytest.mark.parametrize("name", MODELS)
def test_found_by_captured_queries_and_keys_makes_the_next_layers_stream(name):
    """x + W_o softmax(q k) v, then the MLP: the residual stream that the model itself has."""
    run = loaded(*MODELS[name])
    inside = capture(run, **rows(run))
    blocks, epsilon = run.params["blocks"], run.config.model.norm_epsilon
    for layer in range(run.config.model.num_layers):
        x_BTD = inside.inside.stream_LBTD[layer]
        out_NUD = blocks["attention"]["out"][layer]
        x_BTD += jnp.einsum("BTNU,NUD->BTD", inside.found(layer), out_NUD, precision="highest")
        gate, up, down = (blocks["mlp"][each][layer] for each in ("gate", "up", "down"))
        y_BTD = normalized(x_BTD, blocks["mlp_norm"]["scale"][layer], epsilon)
        x_BTD += (jax.nn.silu(y_BTD @ gate) * (y_BTD @ up)) @ down
        last = layer + 1 == run.config.model.num_layers
        expected = inside.hidden_BTD if last else inside.inside.stream_LBTD[layer + 1]
        if last:
            x_BTD = normalized(x_BTD, run.params["final_norm"]["scale"], epsilon)
        np.testing.assert_allclose(x_BTD, expected, atol=1e-5)
    np.testing.assert_allclose(inside.hidden_BTD, hidden(run), atol=1e-5)


def normalized(x_BTD, scale_D, epsilon):
    return x_BTD * jax.lax.rsqrt(jnp.mean(x_BTD**2, -1, keepdims=True) + epsilon) * scale_D


def hidden(run: LoadedRun) -> jax.Array:
    """What the model itself says of `rows`."""
    given, config = rows(run), run.config.model
    return transformer.hidden(
        config,
        run.params,
        position_table(config, run.config.data.context_length, LENGTH),
        given["tokens"],
        given["positions_BT"],
        given["segment_ids_BT"],
    )


def test_another_variant_needs_no_other_forward_pass():
    """In a first layer q and k know nothing of rotation: those of one model serve another."""
    other = rotary_lib.parse("yarn(base=500,factor=2,original_context_length=64)")
    run = loaded({}, "rope(base=30)")
    model = dataclasses.replace(run.config.model, rotary=other)
    turned = dataclasses.replace(run, config=dataclasses.replace(run.config, model=model))
    expected_BNTS = capture(turned, **rows(run)).weights(0)
    weights_BNTS = capture(run, **rows(run)).weights(0, rotary=other)
    np.testing.assert_allclose(weights_BNTS, expected_BNTS, atol=1e-6)
    assert np.abs(weights_BNTS - capture(run, **rows(run)).weights(0)).max() > 0.01


def test_some_queries_are_the_same_as_all(monkeypatch):
    run = loaded({}, "rope(base=30)")
    inside = capture(run, **rows(run))
    all_BNTS = inside.logits(1)
    np.testing.assert_allclose(inside.logits(1, slice(7, 12)), all_BNTS[:, :, 7:12], atol=1e-5)
    monkeypatch.setattr("probes.inside._CHUNK", 3 * 2 * 2 * LENGTH)
    parts = list(inside.chunks(1))
    assert [queries.stop - queries.start for queries, _ in parts] == [3] * 13 + [1]
    np.testing.assert_allclose(jnp.concatenate([part for _, part in parts], 2), all_BNTS, atol=1e-5)


def test_rows_longer_than_trained_on_are_said_to_be():
    run = loaded({}, "rope(base=30)")
    longest = run.config.data.context_length
    with pytest.warns(UserWarning, match=f"{longest + 1} tokens, and .* rows of {longest}"):
        assert capture(run, np.zeros((1, longest + 1), int)).length == longest + 1


@pytest.mark.long
def test_a_long_row_fits_a_small_memory():
    """32,768 tokens within 8 GiB: a process of its own, whose peak is its own."""
    code = """
import resource
import numpy as np
from tests.probes.test_inside import loaded
from probes import capture

inside = capture(loaded(dict(num_heads=4, head_dim=64), "rope(base=30)"), np.zeros((1, 2**15), int))
assert inside.found(0).shape == (1, 2**15, 4, 64)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 8  # GiB


@pytest.mark.parametrize("model", [{}, MLA | dict(shift_keys=True)])
def test_looking_leaves_what_is_computed_as_it_is(model):
    """Without its outputs, what looks inside is the very program that trains."""
    config = loaded(model, "rope(base=30)").config.model
    table, tokens_BT = position_table(config, LENGTH), jnp.zeros((2, LENGTH), jnp.int32)
    given = transformer.abstract_params(config), table, tokens_BT, tokens_BT, tokens_BT
    plain, looked = (
        jax.make_jaxpr(functools.partial(of, config))(*given).jaxpr
        for of in (transformer.hidden, transformer.return_activations)
    )
    assert str(looked) != str(plain)
    bare, _ = dce_jaxpr(looked, [True] + [False] * (len(looked.outvars) - 1), instantiate=True)
    assert str(bare) == str(dce_jaxpr(plain, [True], instantiate=True)[0])
