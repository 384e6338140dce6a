"""Captured queries and keys, rotated and normalized, give what the model's layers compute."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary as rotary_lib
from ropewalk.model import transformer
from ropewalk.model.config import MlaConfig
from ropewalk.probes import capture
from ropewalk.probes.capturing import complex_pairs
from ropewalk.probes.questions import Questions, grade_answers
from ropewalk.probes.viewer.arrays import predict_next

pytestmark = pytest.mark.slow

MLA = dict(
    num_kv_heads=2,
    head_dim=20,
    mla=MlaConfig(kv_lora_rank=8, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=6),
)
YARN = "yarn(base=50,factor=4,original_context_length=32)"
# Every option that affects the weights.
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
    "norm": (dict(qk_norm=True, scale_dim=5), "rope(base=30)"),
    "mla": (MLA, YARN),
    "mla, query latent, shifted": (
        MLA | dict(mla=dataclasses.replace(MLA["mla"], q_lora_rank=8), shift_keys=True),
        YARN,
    ),
    "shifted": (dict(shift_keys=True), "rope(base=30)"),
}
LENGTH = 40
QUICK = "heads", "norm", "mla, query latent, shifted"


def random_model(model: dict, rotary: str) -> LoadedRun:
    """Return a model with random parameters, without a directory."""
    config = change(
        find_config("tiny"), model=model | dict(rotary=rotary_lib.parse_pattern(rotary))
    )
    params = transformer.init(config.model, 0)
    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(1)
    # Norms start at 1 and shifts at 0, at which an omitted one would have no effect.
    leaves = [leaf + 0.2 * random.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return LoadedRun(RunDirectory("nowhere"), 0, config, jax.tree.unflatten(tree, leaves))


def make_rows(run: LoadedRun) -> dict[str, np.ndarray]:
    """Return two rows; the second has two documents."""
    random = np.random.default_rng(2)
    segment_ids_BT = np.ones((2, LENGTH), np.int32)
    segment_ids_BT[1, 25:] = 2
    positions_BT = np.tile(np.arange(LENGTH, dtype=np.int32), (2, 1))
    positions_BT[1, 25:] -= 25
    tokens_BT = random.integers(0, run.config.model.vocab_size, (2, LENGTH))
    return dict(tokens=tokens_BT, positions_BT=positions_BT, segment_ids_BT=segment_ids_BT)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n not in QUICK)) for n in MODELS]
)
def test_head_outputs_give_the_next_layers_stream(name):
    """x + W_o softmax(q k) v and the MLP give the model's residual stream."""
    run = random_model(*MODELS[name])
    captured = capture(run, **make_rows(run))
    blocks, epsilon = run.params["blocks"], run.config.model.norm_epsilon
    for layer in range(run.config.model.num_layers):
        x_BTD = captured.activations.stream_LBTD[layer]
        out_NUD = blocks["attention"]["out"][layer]
        v_BSKU = captured.activations.v_LBSKU[layer]
        v_BSNU = jnp.repeat(v_BSKU, len(out_NUD) // v_BSKU.shape[2], axis=2)
        with jax.default_matmul_precision("highest"):
            out_BTNU = jnp.einsum("BNTS,BSNU->BTNU", captured.weights(layer), v_BSNU)
            x_BTD += jnp.einsum("BTNU,NUD->BTD", out_BTNU, out_NUD)
        gate, up, down = (blocks["mlp"][name][layer] for name in ("gate", "up", "down"))
        y_BTD = normalized(x_BTD, blocks["mlp_norm"]["scale"][layer], epsilon)
        x_BTD += (jax.nn.silu(y_BTD @ gate) * (y_BTD @ up)) @ down
        last = layer + 1 == run.config.model.num_layers
        expected = captured.hidden_BTD if last else captured.activations.stream_LBTD[layer + 1]
        if last:
            x_BTD = normalized(x_BTD, run.params["final_norm"]["scale"], epsilon)
        np.testing.assert_allclose(x_BTD, expected, atol=1e-5)
    np.testing.assert_allclose(captured.hidden_BTD, hidden(run), atol=1e-5)


def normalized(x_BTD, scale_D, epsilon):
    return x_BTD * jax.lax.rsqrt(jnp.mean(x_BTD**2, -1, keepdims=True) + epsilon) * scale_D


def hidden(run: LoadedRun) -> jax.Array:
    """Return the model's hidden states of `make_rows`."""
    batch, config = make_rows(run), run.config.model
    return transformer.hidden(
        config, run.params, config.position_table(run.config.data.context_length, LENGTH),
        batch["tokens"], batch["positions_BT"], batch["segment_ids_BT"],
    )  # fmt: skip


def test_another_variant_needs_no_forward_pass():
    """The first layer's q and k do not depend on the variant."""
    other = rotary_lib.parse("yarn(base=500,factor=2,original_context_length=64)")
    run = random_model({}, "rope(base=30)")
    model = dataclasses.replace(run.config.model, rotary=other)
    other_run = dataclasses.replace(run, config=dataclasses.replace(run.config, model=model))
    expected_BNTS = capture(other_run, **make_rows(run)).weights(0)
    weights_BNTS = capture(run, **make_rows(run)).weights(0, rotary=other)
    np.testing.assert_allclose(weights_BNTS, expected_BNTS, atol=1e-6)
    assert np.abs(weights_BNTS - capture(run, **make_rows(run)).weights(0)).max() > 0.01


def test_answers_and_predictions_have_the_precision_of_evaluation(monkeypatch):
    """A GPU's default products are TF32, whose largest logit may be another."""
    captured = capture(run := random_model({}, "rope(base=30)"), **make_rows(run))
    questions = Questions(
        np.zeros(1, int), np.array([9]), np.array([4]), np.ones((2, LENGTH), bool)
    )
    precisions, unembed = [], transformer.unembed

    def record(*arguments):
        precisions.append(jax.config.jax_default_matmul_precision)  # pyright: ignore
        return unembed(*arguments)

    monkeypatch.setattr(transformer, "unembed", record)
    grade_answers(captured, questions), predict_next(captured, 0)
    assert precisions == ["highest", "highest"]


def test_products_of_complex_pairs_add_up_to_the_logits():
    run = random_model(*MODELS["grouped"])
    captured = capture(run, **make_rows(run))
    q_BTNR, k_BSNR = complex_pairs(*captured.rotated(1))
    ours_BNTS = np.einsum("btnr,bsnr->bnts", q_BTNR, k_BSNR.conj()).real
    logits_BNTS = np.asarray(captured.logits(1))
    visible_BNTS = np.isfinite(logits_BNTS)
    np.testing.assert_allclose(ours_BNTS[visible_BNTS], logits_BNTS[visible_BNTS], atol=1e-5)


def test_chunks_equal_slices_of_all_logits(monkeypatch):
    run = random_model({}, "rope(base=30)")
    captured = capture(run, **make_rows(run))
    all_BNTS = captured.logits(1)
    np.testing.assert_allclose(captured.logits(1, slice(7, 12)), all_BNTS[:, :, 7:12], atol=1e-5)
    monkeypatch.setattr("ropewalk.probes.capturing._CHUNK", 3 * 2 * 2 * LENGTH)
    parts = list(captured.chunks(1))
    assert [len(indices_T) for indices_T, *_ in parts] == [3] * 13 + [1]
    for index, expected in enumerate([all_BNTS, captured.weights(1)], start=1):
        joined = jnp.concatenate([part[index] for part in parts], 2)
        np.testing.assert_allclose(joined, expected, atol=1e-5)
