"""Learned frequencies: exact phases, right gradients, and runs that keep what they learned."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.evals import runner
from ropewalk.experiment import load, overrides
from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.choose import choose_architecture
from ropewalk.model import rotary, transformer
from ropewalk.model.positions import add_offsets, cos_sin, record_learned
from ropewalk.probes.subject import untrained
from ropewalk.training.step import loss_fn
from ropewalk.training.sweep import train_plan
from tests.models import make_plan, tiny_config, train_run

LEARNED = "model.rotary=learned(base=100,learning_rate=0.02)"


def model(base: float = 1e4, **changes):
    config = tiny_config(f"model.rotary=learned(base={base})")
    return dataclasses.replace(config.model, **changes)


def random_offsets(table, seed: int = 0) -> np.ndarray:
    """Offsets of either sign, of every size from 2^-30 to 3 times the frequency."""
    random = np.random.default_rng(seed)
    exponents = random.uniform(-30, 1.5, table.offset_unit.shape)
    return (random.choice([-1, 1], exponents.shape) * 2.0**exponents).astype(np.float32)


@pytest.mark.parametrize("base", [10.0, 1e4, 1e8])
def test_phases_are_those_of_float64(base):
    table = model(base).position_table(64)
    offset_LKR = random_offsets(table)
    moved, tangent_LKR = jax.jit(add_offsets)(table, offset_LKR)
    assert not tangent_LKR.any()
    positions_T = np.array([0, 1, 2, 1023, 65_537, 2**20 + 1, 2**24 - 1])
    cos_TR, sin_TR = (
        np.asarray(x[0, :, 0])
        for x in cos_sin(moved.cycles_hi[0], moved.cycles_lo[0], jnp.asarray(positions_T)[None])
    )
    # In float64 the phases are off by less than 2e-9 cycles.
    cycles_R = table.inv_freq[0, 0] / (2 * np.pi)
    cycles_R += table.offset_unit[0, 0].astype(float) * offset_LKR[0, 0]
    phases_TR = np.outer(positions_T, cycles_R) % 1
    np.testing.assert_allclose(cos_TR, np.cos(2 * np.pi * phases_TR), atol=1e-6)
    np.testing.assert_allclose(sin_TR, np.sin(2 * np.pi * phases_TR), atol=1e-6)


def test_gradient_of_the_loss_is_its_slope():
    config = model(100.0, remat="full")
    table, params = config.position_table(64), transformer.init(config, 0)
    random = np.random.default_rng(3)
    tokens_BT = random.integers(0, 200, (2, 48))
    batch = {
        "tokens": jnp.asarray(tokens_BT[:, :-1]),
        "targets": jnp.asarray(tokens_BT[:, 1:]),
        "positions": jnp.tile(jnp.arange(47), (2, 1)),
        "loss_mask": jnp.ones((2, 47)),
        "segment_ids": jnp.ones((2, 47), jnp.int32),
    }

    @jax.jit
    @jax.value_and_grad
    def loss_and_gradient(offset_LKR):
        attention = params["blocks"]["attention"] | {"frequency_offset": offset_LKR}
        moved = {**params, "blocks": params["blocks"] | {"attention": attention}}
        return loss_fn(moved, config, table, batch, jnp.float32(1))

    zero_LKR = params["blocks"]["attention"]["frequency_offset"]
    # Along the gradient, so that the difference is large against the rounding of the loss.
    _, gradient_LKR = loss_and_gradient(zero_LKR)
    norm = float(jnp.linalg.norm(gradient_LKR))
    high, low = (loss_and_gradient(x / norm * gradient_LKR)[0] for x in (2e-3, -2e-3))
    assert norm == pytest.approx(float(high - low) / 4e-3, rel=0.05)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, tiny_data) -> RunDirectory:
    changes = [*tiny_data, LEARNED, "model.num_layers=1", "train.num_steps=6", "train.save_every=3"]
    config = tiny_config(*changes)
    return train_run(config, tmp_path_factory.mktemp("learned") / "alone")


def offsets_of(run: RunDirectory, step: int | None = None) -> np.ndarray:
    return restore_params(run, step)[0]["blocks"]["attention"]["frequency_offset"]


@pytest.mark.long
def test_members_learn_as_they_do_alone(alone, tmp_path):
    """Two members of a sweep over bases, and the first of them alone."""
    configs = alone.config, overrides.apply(alone.config, ["model.rotary.base=10"])
    members = [RunDirectory(tmp_path / name) for name in ("a", "b")]
    assert train_plan(make_plan(configs, members))
    ours, others = offsets_of(members[0]), offsets_of(members[1])
    assert ours.shape == (1, 1, 8) and ours.dtype == np.float32
    # Six updates of at most the learning rate each, and no pair left out.
    assert np.abs(ours).min() > 0 and np.abs(ours).max() <= 6 * 0.02 * 1.1
    assert not np.array_equal(ours, others)
    np.testing.assert_allclose(ours, offsets_of(alone), atol=1e-3)


@pytest.mark.slow
def test_a_loaded_run_has_the_learned_table(alone):
    config = alone.config
    run, offset_LKR = load(alone.path), offsets_of(alone).astype(np.float64)
    start = config.model.position_table(64)
    expected = start.inv_freq + 2 * np.pi * start.offset_unit * offset_LKR
    np.testing.assert_allclose(run.table.inv_freq, expected, rtol=1e-14)
    assert np.abs(run.table.inv_freq / start.inv_freq - 1).min() > 1e-4
    assert run.rotary_label == rotary.expression(config.model.rotary)
    # The program that trained it computes the same.
    params, _ = restore_params(alone)
    tokens_BT = np.random.default_rng(0).integers(0, 200, (2, 64))
    expected_BTV = transformer.document_logits(config.model, params, start, tokens_BT)
    np.testing.assert_allclose(run.logits(tokens_BT), expected_BTV, atol=1e-5)


@pytest.mark.slow
def test_probes_rotate_the_untrained_model_by_the_series(alone):
    trained = load(alone.path)
    run = untrained(trained)
    np.testing.assert_allclose(run.table.inv_freq[0, 0], 100.0 ** (-np.arange(8) / 8))
    # The probe head_scores combines the trained rotation with initial parameters.
    for model in (run, dataclasses.replace(trained, params=run.params)):
        assert np.isfinite(model.logits(np.zeros((1, 4), np.int32))).all()


@pytest.mark.slow
def test_learned_changes_are_not_added_to_another_series(alone):
    """Half of what was learned at base 100 would otherwise be silently part of base 7."""
    start, child = f"start_from={alone.path}@6", RunDirectory(alone.path.parent / "child")
    for changes in ([start, "model.rotary.base=7"], ['stages=[["model.rotary.base=7"]]']):
        config = overrides.apply(alone.config, changes)
        with pytest.raises(ValueError, match=r"from other frequencies; keep .*base=100"):
            make_plan([config], [child])
    # The same beside a member that has base 7 from the start.
    configs = [overrides.apply(config, ["model.rotary.base=7"]), config]
    with pytest.raises(ValueError, match=r"from other frequencies; keep .*base=100"):
        make_plan(configs, [child, RunDirectory(child.path.with_name("other"))])
    config = overrides.apply(alone.config, [start, "model.rotary.learning_rate=0.1"])
    make_plan([config], [child])


@pytest.mark.slow
def test_evaluation_reads_the_learned_vector(alone):
    options = runner.Options(tasks=["kv"], variants=["trained", "rope(base=100)"], documents=4)
    ((_, config, rows),) = runner.evaluate([alone.path], options)
    assert not config.model.learned_frequencies
    labels, nll = np.asarray(rows["rotary"]), np.asarray(rows["nll"])
    trained = "learned(base=100,learning_rate=0.02)"
    assert set(labels) == {trained, "rope(base=100)"}
    assert not np.allclose(nll[labels == trained], nll[labels != trained])


def test_only_what_is_learned_moves():
    config = tiny_config("model.rotary=[[learned(base=100),nope]]", "model.num_kv_heads=2").model
    table = config.position_table(64)
    offset_LKR = np.ones((2, 2, 8), np.float32)
    moved, _ = add_offsets(table, offset_LKR)
    assert (moved.cycles_hi[0, 0] != table.cycles_hi[0, 0]).all()
    assert not moved.cycles_hi[:, 1].any() and not moved.cycles_lo[:, 1].any()
    params = {"blocks": {"attention": {"frequency_offset": offset_LKR}}}
    recorded, rest = record_learned(config, params)
    assert not recorded.learned_frequencies and rest == {"blocks": {"attention": {}}}
    assert not recorded.position_table(64).inv_freq[:, 1].any()
    with pytest.raises(ValueError, match="differ between heads"):
        choose_architecture(recorded, 64)


def test_two_learning_rates_are_refused():
    change = "model.rotary=[[learned(base=10),learned(base=10,learning_rate=1)]]"
    with pytest.raises(ValueError, match="share one learning_rate"):
        tiny_config(change, "model.num_kv_heads=2")
