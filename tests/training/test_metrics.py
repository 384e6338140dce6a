"""metrics.jsonl: a checkpoint knows the rows that lead to it, and what is lost is said."""

import shutil
import time

import jax
import pytest

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.items import metrics_damage, read_digests
from ropewalk.experiment.run import RunDirectory
from ropewalk.training import loop
from tests.models import tiny_config, train_run
from tests.training.helpers import CONSTANT

pytestmark = pytest.mark.slow

GIVEN = (*CONSTANT, "train.num_steps=4", "train.save_every=2", "train.log_every=1", "train.keep=9")


def test_lost_rows_are_said_when_a_run_is_resumed_and_ever_after(tiny_data, tmp_path, capfd):
    config = tiny_config(*tiny_data, *GIVEN)
    intact = train_run(config, tmp_path / "whole")
    lines = intact.metrics_path.read_text().splitlines(keepends=True)
    assert len(lines) == 4 and not metrics_damage(intact)
    first = intact.read_metrics()[0]  # its rate includes the compilation, as its seconds do
    rate = first["tokens"] / first["seconds"]
    assert first["tokens_per_second"] == pytest.approx(rate, rel=0.01)
    record = read_digests(intact, 4)["metrics"]
    assert record["rows"] == 4
    for name, left in (("as it was", 4), ("later rows gone", 2), ("cut", 1), ("emptied", 0)):
        path = tmp_path / name
        shutil.copytree(intact.path, path)
        (path / "metrics.jsonl").write_text("".join(lines[:left]))
        damage, rows = metrics_damage(RunDirectory(path)), "row" if left == 1 else "rows"
        assert damage == "" if left == 4 else f"has {left} {rows}, and 4 were logged" in damage
        shutil.rmtree(path / "checkpoints/4")
        capfd.readouterr()
        resumed = train_run(config, path)
        output = capfd.readouterr().err
        if left >= 2:
            # What was logged again is what had been logged, but for the clock.
            assert "DAMAGED" not in output and read_digests(resumed, 4)["metrics"] == record
            assert not metrics_damage(resumed)
        else:
            assert f"DAMAGED: {path}/metrics.jsonl has {left} {rows}, and 2 were logged" in output
            assert "lost rows of the first 2 steps" in metrics_damage(resumed)
        # No row is state: the run is the same.
        assert restore_params(resumed)[1] == 4 and run_id(resumed, 4) == run_id(intact, 4)


def test_no_rate_is_above_that_of_the_device(tiny_data, tmp_path, monkeypatch):
    """An update takes .3 s, during which the host waits, as it does where CPUs compute inline."""
    compile_step = loop.compile_step

    def compile_slow_step(*arguments):
        step_fn = compile_step(*arguments)

        def slow_step(*inputs):
            time.sleep(0.3)
            return jax.block_until_ready(step_fn(*inputs))

        return slow_step

    monkeypatch.setattr(loop, "compile_step", compile_slow_step)
    rows = train_run(tiny_config(*tiny_data, *GIVEN), tmp_path / "run").read_metrics()
    assert max(row["tokens_per_second"] for row in rows) <= rows[0]["tokens"] / 0.3
