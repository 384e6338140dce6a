"""Counts beyond 32 bits: a run that resumes after 2^30 updates, 2^34 rows, 2^40 tokens."""

import dataclasses

import numpy as np
import pytest

from ropewalk.data import pipeline
from ropewalk.experiment.checkpoint import Checkpoints, restore
from ropewalk.experiment.mesh import make_mesh
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.interrupts import Interrupts
from ropewalk.training.members import abstract_state
from ropewalk.training.sweep import train_plan
from tests.models import make_plan, tiny_config, train_run
from tests.training.helpers import CONSTANT, data_state

STEP = 2**30
pytestmark = pytest.mark.slow  # compiles a train step


@pytest.mark.long
def test_a_run_goes_on_after_a_trillion_tokens(tmp_path, tiny_data, monkeypatch):
    changes = (f"train.{name}_every=1" for name in ("save", "log", "eval"))
    changes = *CONSTANT, *changes, "data.retrieval_fraction=0.5", f"train.num_steps={STEP + 2}"
    config = tiny_config(*tiny_data, *changes)
    run = RunDirectory(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "stops_at", lambda self, step: step == 1)
        assert not train_plan(make_plan([config], [run]))

    # The state after one update becomes that after 2^30.
    target = abstract_state(config, 1, make_mesh(config, 1))
    saved = restore(run, 1, params=target.params, opt_state=target.opt_state)
    checkpoints = Checkpoints(run, keep=9)
    batch_size = config.data.batch_size
    data = dataclasses.replace(saved.data, rows=STEP * batch_size)
    arrays = saved.arrays
    checkpoints.save(STEP, arrays["params"], arrays["opt_state"], data, config)
    checkpoints.close()

    train_run(config, run.path)

    tokens_per_step = batch_size * config.data.context_length
    rows = run.read_metrics()
    assert [(row["step"], row["tokens"]) for row in rows[-2:]] == [
        (step, step * tokens_per_step) for step in (STEP + 1, STEP + 2)
    ]
    assert all(np.isfinite(row["loss"]) for row in rows[-2:])
    stored = data_state(run, STEP + 2)
    assert stored["rows"] == (STEP + 2) * batch_size > 2**33

    # Rows are those of their number, and the digest counts them: Python's integers have no bound.
    trained = pipeline.open_data(config.data)
    batches = pipeline.make_batches(trained, start_step=STEP)
    hashes = [int(value) for _ in range(2) for value in next(batches)["row_hash"]]
    assert (saved.data.digest + sum(hashes)) % 2**64 == stored["digest"]
