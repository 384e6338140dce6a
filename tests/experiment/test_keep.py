"""A run kept to be looked at: read as it was written, small, and not what trains on."""

import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import load
from ropewalk.experiment.__main__ import keep
from ropewalk.experiment.records import SweepRecord, read_sweep
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.model import transformer
from tests.models import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    """Two untrained checkpoints."""
    path = tmp_path_factory.mktemp("runs") / "base=30,seed=1"
    run = write_run(path, find_config("tiny"), steps=(5, 10))
    run.record_command("python train.py tiny")
    for folder, name in (("held_out", "store.json"), ("published", "chat_template.jinja")):
        (run.path / folder).mkdir()
        (run.path / folder / name).write_text(name)
    return run


@pytest.mark.parametrize("step, expected", [(None, 10), (5, 5)])
def test_what_is_read_are_the_parameters_in_eight_bits(run, tmp_path, step, expected):
    keep([run.path], tmp_path, step, command="python -m experiment keep")
    copy, original = load(tmp_path / run.name), load(run.path, expected)
    assert copy.step == expected and copy.config == original.config
    exact = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(np.float32), original.params)
    same = functools.partial(np.testing.assert_array_equal, strict=True)
    jax.tree.map(same, copy.params, exact)
    # Its perplexity is of the same text, and its chat template is the published one.
    for name in ("held_out/store.json", "published/chat_template.jinja"):
        assert (copy.directory.path / name).read_text() == name.partition("/")[2]
    assert copy.directory.read_commands() == ["python train.py tiny", "python -m experiment keep"]
    checkpoint = copy.directory.checkpoints_path / str(expected)
    assert {path.name for path in checkpoint.iterdir()} == {"config", "data", "digests", "params"}
    files = [path for path in copy.directory.path.rglob("*") if path.is_file()]
    assert not [path for path in files if str(tmp_path).encode() in path.read_bytes()]
    assert not (tmp_path / "sweep.json").exists()
    size = sum(path.stat().st_size for path in (checkpoint / "params").rglob("d/*"))
    assert size < 2.5 * transformer.count_params(copy.config.model)["total"]


def test_a_copy_of_a_sweep_is_a_sweep_of_the_members_that_were_kept(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "sweep" / run.name)
    record = SweepRecord(config="tiny", overrides=("seed=1,2",), members=("seed=2", run.name))
    (tmp_path / "sweep" / "sweep.json").write_text(record.to_json())
    out = tmp_path / "out"
    keep([tmp_path / "sweep"], out, None, command="")
    assert [kept.path for kept in find_runs([out])] == [out / run.name]
    assert read_sweep(out).config == "tiny" and read_sweep(out).members == (run.name,)
    with pytest.raises(ValueError, match="out holds a sweep; give another --out"):
        keep([run.path], out, None, command="")
