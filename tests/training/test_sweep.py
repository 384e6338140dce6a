"""A sweep's members are runs like any other."""

import shutil

import jax
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import Checkpoints, restore_params
from ropewalk.experiment.items import read_digests
from ropewalk.experiment.overrides import make_sweep
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.training import sweep
from ropewalk.training.interrupts import Interrupts
from ropewalk.training.plan import check_plan
from ropewalk.training.programs import shared_part
from ropewalk.training.sweep import train_plan, train_sweep
from tests.in_process import call
from tests.models import make_plan, tiny_config
from tests.training.helpers import NINE, data_state, rows_without_times


@pytest.fixture(scope="module")
def finished_sweep(tmp_path_factory, tiny_data):
    folder = tmp_path_factory.mktemp("sweep")
    messages = call(
        "sweep.py", "tiny", "--workdir", folder, *tiny_data, *NINE,
        "model.rotary.base=10,10000", "seed=0,1",
    )  # fmt: skip
    return folder, messages


@pytest.mark.slow
def test_a_member_equals_its_single_run(finished_sweep, tmp_path, tiny_data):
    folder, _ = finished_sweep
    alone = RunDirectory(tmp_path / "alone")
    call(
        "train.py", "tiny", "--workdir", alone.path, *tiny_data, *NINE,
        "model.rotary.base=10", "seed=1",
    )  # fmt: skip
    member = RunDirectory(folder / "base=10,seed=1")
    assert sorted(p.name for p in member.path.iterdir()) == sorted(
        p.name for p in alone.path.iterdir()
    )
    assert member.config == alone.config and member.steps() == alone.steps()
    losses = [[row["loss"] for row in run.read_metrics()] for run in (member, alone)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert data_state(member) == data_state(alone)
    params, alone_params = restore_params(member)[0], restore_params(alone)[0]
    np.testing.assert_allclose(params["embedding"], alone_params["embedding"], atol=1e-4)


@pytest.mark.slow
def test_a_seed_has_its_own_rows_and_initialization(finished_sweep):
    folder, messages = finished_sweep
    runs = find_runs([folder])
    assert [run.config.data.seed for run in runs] == [0, 1, 0, 1]
    digests = [data_state(run)["digest"] for run in runs]
    assert digests[:2] == digests[2:] and digests[0] != digests[1]
    assert messages.count("training base=10,seed=") == 2  # two seeds, one after the other
    first, last = ([run.read_metrics()[i]["loss"] for run in runs] for i in (0, -1))
    # The first loss is before any update: the seeds alone decide it, nearly.
    assert abs(first[0] - first[2]) < abs(first[0] - first[1])
    assert len(set(last)) == 4


@pytest.mark.long
def test_a_sweep_is_trained_longer_as_a_run_is(finished_sweep, tmp_path, tiny_data):
    """Each member starts from the member of its name, also after that sweep is deleted."""
    source = shutil.copytree(finished_sweep[0], tmp_path / "short")
    command = ["sweep.py", "tiny", *tiny_data, *NINE, "model.rotary.base=10,10000", "seed=0,1"]
    longer = [*command, "train.num_steps=10", "--workdir"]
    assert f"another --workdir with start_from={source}\n" in call(*longer, source, status=2)
    other = ["sweep.py", "tiny", *tiny_data, "model.rotary.base=10,20", "--workdir", tmp_path / "b"]
    assert "has no member base=10" in call(*other, f"start_from={source}", status=2)
    shorter = [*command, f"start_from={source}@5", "--workdir"]
    call(*shorter, tmp_path / "long")
    call(
        "train.py", "tiny", *tiny_data, *NINE, "seed=1", "--workdir",
        tmp_path / "alone", f"start_from={source}/base=10,seed=1@5",
    )  # fmt: skip
    member = RunDirectory(tmp_path / "long" / "base=10,seed=1")
    alone = RunDirectory(tmp_path / "alone")
    assert member.config == alone.config
    params, alone_params = restore_params(member)[0], restore_params(alone)[0]
    np.testing.assert_allclose(params["embedding"], alone_params["embedding"], atol=1e-5)
    shutil.rmtree(source)
    assert call(*shorter, tmp_path / "long").count("finished already") == 2


@pytest.mark.slow
def test_every_save_that_is_announced_exists_after_a_kill_between_two_members_saves(
    tmp_path, tiny_data, monkeypatch, capsys
):
    """One checkpoint is kept: the first member's new one must not cost it the one before."""
    few = [*NINE, "train.save_every=3", "train.keep=1", "data.seed=0", *tiny_data]
    configs = [tiny_config(*few, f"model.rotary.base={base}") for base in (10, 100)]
    whole, runs = ([RunDirectory(tmp_path / part / name) for name in "ab"] for part in "wr")
    assert train_plan(make_plan(configs, whole))
    save = Checkpoints.save

    def save_and_be_killed(self, step, *arguments):
        if step == killed_at and self._run.name == "b":
            raise KeyboardInterrupt
        save(self, step, *arguments)
        self._manager.wait_until_finished()

    monkeypatch.setattr(Checkpoints, "save", save_and_be_killed)
    for killed_at, common in ((3, []), (6, [3])):
        with pytest.raises(KeyboardInterrupt):
            train_plan(make_plan(configs, runs))
        assert [run.steps() for run in runs] == [[*common, killed_at], common]
    lines = check_plan(make_plan(configs, runs).members).describe()
    assert any("step 3 of 9" in x and "6, past it, is set aside" in x for x in lines)
    monkeypatch.setattr(Checkpoints, "save", save)
    for stop in (4, 5, 7):
        monkeypatch.setattr(Interrupts, "stops_at", _signal_at(stop))
        assert not train_plan(make_plan(configs, runs))
        assert f"stopped by SIGTERM at step {stop} of 9; saved" in capsys.readouterr().err
        assert [run.steps() for run in runs] == [[stop], [stop]]
    monkeypatch.setattr(Interrupts, "stops_at", lambda self, step: False)
    assert train_plan(make_plan(configs, runs))
    for run, expected in zip(runs, whole, strict=True):
        assert run.steps() == [9] and rows_without_times(run) == rows_without_times(expected)
        assert read_digests(run, 9) == read_digests(expected, 9)
        assert [path.name for path in run.checkpoints_path.iterdir()] == ["9"]


def _signal_at(stop: int):
    def stops_at(interrupts: Interrupts, step: int) -> bool:
        interrupts.received = "SIGTERM" * (step == stop)
        return step == stop

    return stops_at


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [
        # Arrays may differ in any stage; programs may not.
        (["model.rotary.base=7"], ["model.rotary=nope", "seed=3", "data.seed=0"], 1),
        (["seed=3"], ["model.rotary=nope"], 2),  # on rows of its own
        (["stages=[[model.rotary.base=7]]"], ["stages=[[train.learning_rate=1]]"], 1),
        (["start_from=runs/a"], ["start_from=runs/b@4"], 1),
        (["start_from=runs/a"], [], 2),
        (["stages=[[train.num_steps=7]]"], ["stages=[[train.num_steps=8]]"], 2),
        (["stages=[[train.learning_rate=1]]"], [], 2),
    ],
)
def test_members_share_a_program_where_all_their_stages_do(first, second, groups):
    tiny = find_config("tiny")
    shared = {shared_part(overrides.apply(tiny, changes)) for changes in (first, second)}
    assert len(shared) == groups


@pytest.mark.long
def test_seeds_follow_one_another_through_one_program(tmp_path, tiny_data, monkeypatch):
    """The second seed compiles nothing: neither step, nor initialization, validation and saves."""
    compilations, counts, train = [], [], sweep.train_plan

    def note(event, duration_secs, **_):
        if event == "/jax/core/compile/backend_compile_duration":  # or found in the cache on disk
            compilations.append(duration_secs)

    def counted(plan, **options):
        finished = train(plan, **options)
        counts.append(len(compilations))
        return finished

    jax.monitoring.register_event_duration_secs_listener(note)
    monkeypatch.setattr(sweep, "train_plan", counted)
    changes = ["seed=0,1", "model.rotary.base=10,100", "train.num_steps=4", "train.eval_every=2"]
    assert train_sweep(make_sweep(find_config("tiny"), tmp_path, [*tiny_data, *changes]))
    jax.monitoring.clear_event_listeners()
    assert counts[0] > 0 and counts[1] == counts[0]


GRID = ["model.rotary.base=10,1e4", "seed=0,1", "train.num_steps=3"]


def test_members_one_by_one_are_the_sweep(tmp_path):
    """Array jobs and Kubernetes train members so, in any order."""
    sweep = make_sweep(find_config("tiny"), tmp_path, GRID)
    for number in (3, 0, 2, 1):
        part = make_sweep(find_config("tiny"), tmp_path, GRID, only=number)
        # Their texts: processes compare these.
        assert repr(part.members) == repr([sweep.members[number]]) and part.record == sweep.record
