"""A run whose loss is not finite any more is frozen, said and stopped; its neighbors go on."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import Checkpoints, DataState, last_good, restore_params
from ropewalk.experiment.overrides import make_sweep
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import split
from ropewalk.training import step, sweep
from ropewalk.training.log import DivergedError
from ropewalk.training.programs import member_arrays
from ropewalk.training.sweep import train_plan, train_sweep
from tests.in_process import call
from tests.models import make_plan, tiny_config
from tests.training.helpers import NINE, assert_same_run

TOO_FAST = "train.learning_rate=1e30"  # its first update ends all others


@pytest.fixture(scope="module")
def tiny(tiny_data):
    return tiny_config(*tiny_data, *NINE, "train.save_every=3", "train.keep=9")


def test_a_state_is_frozen_by_updates_skipped_in_a_row_and_by_no_others(tiny, monkeypatch):
    """With a loss that compiles quickly: the weights of a batch, times a sum over parameters."""

    def loss_fn(params, config, table, batch, num_targets):
        return batch["loss_mask"].sum() * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params))

    monkeypatch.setattr(step, "loss_fn", loss_fn)
    step_fn = jax.jit(step.train_step, static_argnums=0)
    member = member_arrays(split(tiny)[:1])
    good, bad = ({"loss_mask": np.full((1, 1), value)} for value in (1.0, np.nan))

    def counts(batches):
        state, counts = step.init_state(tiny, jnp.uint32(0)), []
        for batch in batches:
            before = state[:2]
            state, scalars = step_fn(tiny, state, member, batch, np.int32(3))
            counts.append(int(scalars["skipped"]))
            same = jax.tree.map(np.array_equal, before, state[:2])
            assert jax.tree.all(same) == bool(counts[-1])
        return counts

    assert counts([bad, bad, good, bad, bad, good]) == [1, 2, 0, 1, 2, 0]
    assert counts([good, bad, bad, bad, good, good]) == [0, 1, 2, 3, 4, 5]


def pair(tiny, folder, rate):
    """Two members that train together, the second at a learning rate of its own."""
    configs = [tiny, overrides.apply(tiny, [rate])]
    runs = [RunDirectory(folder / name) for name in ("even", "fast")]
    assert train_plan(make_plan(configs, runs))
    return runs


@pytest.fixture(scope="module")
def diverging(tiny, tmp_path_factory):
    return pair(tiny, tmp_path_factory.mktemp("diverging"), TOO_FAST)


@pytest.mark.slow
def test_a_member_is_frozen_and_its_neighbor_is_bit_equal(tiny, diverging, tmp_path, capsys):
    even, fast = diverging
    beside_a_sound_one, sound = pair(tiny, tmp_path, "train.learning_rate=1e-3")
    assert "diverged" not in capsys.readouterr().err
    assert_same_run(even.path, beside_a_sound_one.path)
    assert [row["skipped"] for row in fast.read_metrics()] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [run.diverged_at for run in (even, fast, sound)] == [None, 2, None]
    frozen = [restore_params(fast, step)[0] for step in (3, 9)]
    jax.tree.map(np.testing.assert_array_equal, *frozen)
    pair(tiny, even.path.parent, TOO_FAST)  # finished already
    output = capsys.readouterr().err
    assert f"{fast.path} diverged at step 2: " in output
    assert output.endswith("1 of 2 members diverged: fast at step 2\n")


@pytest.mark.long
def test_a_lone_run_stops_and_says_what_was_good(tiny_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(Path("run"))
    command = "train.py", "tiny", "--workdir", run.path, *tiny_data, *NINE, "train.save_every=3"
    # The first update at that rate is the tenth; the eleventh is skipped, and so are two more,
    # which is noticed while the next one is under way.
    message = "error: run diverged at step 11: .* step 9: start_from=run@9, with a lower"
    for _ in range(2):  # the same command again says the same
        output = call(*command, "train.keep=9", f"stages=[[{TOO_FAST}]]", status=1)
        assert re.search(message, output.splitlines()[-1]) and "Traceback" not in output
    assert run.diverged_at == 11 and run.steps() == [3, 6, 9, 12, 14]
    assert [row["skipped"] for row in run.read_metrics()] == [*[0] * 10, 1, 2, 3, 4]


def test_a_sweep_goes_on_past_a_group_that_diverged(tiny, tmp_path, capsys, monkeypatch):
    def train_group(plan, **_):
        if plan.config.model.num_layers in diverging:
            raise DivergedError(f"so many layers: {plan.config.model.num_layers}")
        return True

    monkeypatch.setattr(sweep, "train_plan", train_group)
    diverging = {1}
    assert train_sweep(make_sweep(tiny, tmp_path, ["model.num_layers=1,2"]))
    assert "so many layers: 1" in capsys.readouterr().err
    diverging = {1, 2}
    with pytest.raises(DivergedError, match="all members diverged"):
        train_sweep(make_sweep(tiny, tmp_path, ["model.num_layers=1,2"]))


@pytest.mark.parametrize(("diverged", "good"), [(11, 9), (10, 6), (7, 3), (4, None)])
def test_parameters_that_gave_the_first_loss_that_is_not_finite_are_not_good(diverged, good):
    """Update number d reads the parameters that d - 1 updates made."""
    assert last_good([3, 6, 9], diverged) == good


def test_the_last_good_checkpoint_outlives_those_that_are_all_alike(tiny, tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.write_config(tiny, [])
    checkpoints = Checkpoints(run, keep=1)

    def steps_after(step, skipped):
        data = DataState(fingerprint="", skipped_in_row=skipped)
        checkpoints.remove_old(run.steps(), step, skipped)
        checkpoints.save(step, {"a": jnp.zeros(1)}, {"b": jnp.zeros(1)}, data, tiny)
        checkpoints._manager.wait_until_finished()
        return run.steps()

    kept_steps = [steps_after(*saved) for saved in ((2, 0), (4, 0), (6, 1), (8, 3), (9, 0))]
    # One more is there until the next save.
    assert kept_steps == [[2], [2, 4], [4, 6], [4, 6, 8], [8, 9]]
    checkpoints.close()
    checkpoints.remove_old(run.steps(), 9)
    assert run.steps() == [9]
