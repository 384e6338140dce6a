"""Early stop on the validation loss, and the best checkpoint: stopped, resumed, swept, in stages.

A learning rate of 1e-30 changes nothing: with it no loss is lower than the first, at step 2.
"""

import jax
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.interrupts import Interrupts
from ropewalk.training.validation import Validation
from tests.in_process import call, call_any
from tests.training.helpers import assert_same_run, data_state, rows_without_times

STILL, LEARNS = "train.learning_rate=1e-30", "train.learning_rate=3e-3"
STOPS = ["train.num_steps=12", "train.eval_every=2", "train.stop_after=2", "train.save_every=5"]
STOPS += ["train.schedule=constant", "train.keep_best=true", "evals.tasks=[kv]"]

pytestmark = pytest.mark.slow


def stop_at(monkeypatch, *steps: int) -> None:
    """Let a signal arrive at each of `steps`, once."""
    left = [*steps]

    def stops_at(interrupts: Interrupts, step: int) -> bool:
        if step in left:
            left.remove(step)
            interrupts.received = "SIGTERM"
        return bool(interrupts.received)

    monkeypatch.setattr(Interrupts, "stops_at", stops_at)


def test_a_run_stops_after_losses_that_are_not_lower(tmp_path, tiny_data, monkeypatch):
    """At steps 2, 4 and 6; a signal before, or at the stop, changes no bit."""
    command = ["train.py", "tiny", *tiny_data, *STOPS, STILL, "--workdir"]
    output = call(*command, tmp_path / "whole")
    assert "stopped early at step 6 of 12: 2 evaluations without a lower validation loss" in output
    assert "of step 2\n" in output and "trained 6 steps" in output and "finished. Next:" in output
    whole = RunDirectory(tmp_path / "whole")
    assert (whole.steps(), whole.ends, whole.is_finished) == ([2, 5, 6], [6], True)
    assert whole.unfinished == "6 of 12 steps, stopped early"
    assert [row["step"] for row in rows_without_times(whole)] == [1, 2, 3, 4, 5, 6]
    assert "finished already, 6 steps" in call(*command, whole.path)
    for stops in ((3,), (4, 5), (6,)):
        path = tmp_path / "-".join(map(str, stops))
        stop_at(monkeypatch, *stops)
        for _ in stops:
            call_any(*command, path)
        call(*command, path)
        assert_same_run(whole.path, path)
        assert RunDirectory(path).steps()[-1] == 6
    call("-m", "experiment", "prune", path, "--optimizer")
    assert "finished already, 6 steps, and pruned" in call(*command, path)
    output = call(*command, whole.path, "train.eval_every=3", status=2)
    assert "train.eval_every=2, and this one has train.eval_every=3" in output


@pytest.mark.long
def test_a_member_that_is_stopped_leaves_the_others(tmp_path, tiny_data, monkeypatch):
    """Each member's run is the one that a command of its own makes."""
    command = ["sweep.py", "tiny", *tiny_data, *STOPS, "train.learning_rate=1e-30,3e-3"]
    stop_at(monkeypatch, 3, 9)
    for _ in range(2):
        call_any(*command, "--workdir", tmp_path / "sweep")
    output = call(*command, "--workdir", tmp_path / "sweep")
    assert "finished. Next:" in output
    for rate, end in (("1e-30", 6), ("3e-3", 12)):
        member = tmp_path / "sweep" / f"learning_rate={rate}"
        assert RunDirectory(member).steps()[-1] == end
        alone = tmp_path / rate
        call(
            "train.py",
            "tiny",
            *tiny_data,
            *STOPS,
            f"train.learning_rate={rate}",
            "--workdir",
            alone,
        )
        rows = [rows_without_times(run) for run in (alone, member)]
        assert [[row["step"] for row in rows_of] for rows_of in rows] == [[*range(1, end + 1)]] * 2
        losses = [[row["val_loss"] for row in x if "val_loss" in row] for x in rows]
        np.testing.assert_allclose(*losses, rtol=1e-5)
        states = [data_state(run) for run in (alone, member)]
        for state in states:
            del state["validation"]["best_loss"]  # to rounding only, in another program
        assert states[0] == states[1]
    assert call(*command, "--workdir", tmp_path / "sweep").count("finished already") == 2


@pytest.mark.long
def test_a_stage_that_is_stopped_is_followed_by_the_next(tmp_path, tiny_data, monkeypatch):
    """It starts with the parameters of step 6, at the number that the stages before it make 12."""
    stages = f"stages=[[{LEARNS},train.num_steps=4,train.stop_after=0]]"
    command = ["train.py", "tiny", *tiny_data, *STOPS, STILL, stages, "--workdir"]
    call(*command, tmp_path / "whole")
    whole = RunDirectory(tmp_path / "whole")
    assert (whole.ends, whole.unfinished, whole.steps()[-1]) == ([6, 16], "", 16)
    assert {2, 6} <= {*whole.steps()}
    rows = rows_without_times(whole)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 13, 14, 15, 16]
    assert rows[-1]["tokens"] == 10 * 8 * 64 and data_state(whole)["rows"] == 10 * 8
    stop_at(monkeypatch, 6, 14)
    for _ in range(2):
        call_any(*command, tmp_path / "resumed")
    call(*command, tmp_path / "resumed")
    assert_same_run(whole.path, tmp_path / "resumed")
    changed = jax.tree.map(
        lambda x, y: not np.array_equal(x, y),
        *(restore_params(whole, step)[0] for step in (6, 16)),
    )
    assert any(jax.tree.leaves(changed))


@pytest.mark.long
def test_the_best_checkpoint_of_each_member_is_kept(tmp_path, tiny_data, monkeypatch):
    losses = iter([[3, 3], [2, 4], [2.5, 1], [2, np.nan], [5, 2]])  # of two members, at 2, 4, ...
    monkeypatch.setattr(Validation, "_loss", lambda *_: np.array(next(losses)))
    changes = [*STOPS, "train.num_steps=10", "train.stop_after=0", "train.keep=1"]
    call("sweep.py", "tiny", *tiny_data, *changes, f"{STILL},1e-3", "--workdir", tmp_path)
    for rate, best, loss in (("1e-30", 4, 2), ("1e-3", 6, 1)):
        run = RunDirectory(tmp_path / f"learning_rate={rate}")
        assert run.steps() == [best, 10]
        validation = data_state(run)["validation"]
        assert (validation["best_steps"], validation["best_loss"]) == ([best], loss)
