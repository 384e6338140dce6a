"""Every file that a command reads in a run or a sweep is that run's, and as it was written."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.evals import runner
from ropewalk.experiment import metrics
from ropewalk.experiment.overrides import make_sweep
from ropewalk.experiment.records import SweepRecord, read_sweep
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.reporting import commands
from ropewalk.reporting import members as members_lib
from ropewalk.utils.messages import print_note
from tests.damage import flip
from tests.data.helpers import make_store
from tests.in_process import call
from tests.models import tiny_config

TASKS = ["kv", "perplexity"]
# Read by no evaluation or report: states of optimizers, and what orbax writes beside the arrays,
# which are compared with their digests (tests/training/test_damage.py).
UNREAD = re.compile(
    r"opt_state|params/(_|.*process_0|array_m)|commit_success|_CHECKPOINT|\.lock|/1/"
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, tiny_data) -> Path:
    """A finished and evaluated sweep of two members."""
    folder = tmp_path_factory.mktemp("sweep")
    small = "train.num_steps=2", "train.save_every=1"
    call("sweep.py", "tiny", "--workdir", folder, *tiny_data, *small, "model.rotary.base=10,99")
    call("evaluate.py", folder, "--tasks", ",".join(TASKS), "--documents", 2)
    return folder


def read(sweep: Path) -> str:
    """Return all that `evaluate` and `report` say about a sweep."""
    said, errors = [], io.StringIO()
    print_note.cache_clear()
    with contextlib.redirect_stderr(errors):
        try:
            runs = find_runs([sweep], said.append)
            plan = runner.make_plan(runs, runner.Options(tasks=TASKS, documents=2))
            said += plan.describe()[:-1]  # but the line that counts documents
            members_lib.read(runs, said.append)
            commands.repeat({sweep: runs}, "ropewalk report a")
        except ValueError as error:
            said.append(f"error: {error}")
    return "\n".join([*said, errors.getvalue()])


@pytest.mark.slow
def test_no_file_of_another_run_and_no_flipped_bit_is_read_without_a_word(sweep, tmp_path):
    """Each replaced file is refused or told; `pytest -s` prints the table."""
    run, other = sweep / "base=10", shutil.copytree(sweep / "base=99", tmp_path / "other")
    shutil.rmtree(other / "held_out")  # the members have one text
    make_store(other / "held_out", [[5, 6, 7] * 99] * 60)
    record = make_sweep(tiny_config(), sweep, ["model.rotary.base=10,99", "seed=1"]).record
    assert record and record.members == read_sweep(sweep).members
    (other / "sweep.json").write_text(record.to_json())
    said, table = read(sweep), {}
    assert not re.search("error|skipped|note", said)

    def replace(path: Path, name: str) -> None:
        aside = path.rename(tmp_path / "aside")
        (shutil.copytree if aside.is_dir() else shutil.copy)(other / name, path)
        table[name, "another run's"] = read(sweep)
        (shutil.rmtree if aside.is_dir() else Path.unlink)(path)
        aside.rename(path)

    for name in ("held_out", "checkpoints/2"):
        replace(run / name, name)
    for path in [sweep / "sweep.json", *(path for path in run.rglob("*") if path.is_file())]:
        name, content = (
            str(path.relative_to(run if run in path.parents else sweep)),
            path.read_bytes(),
        )
        if UNREAD.search(name):
            continue
        if (other / name).exists() and (other / name).read_bytes() != content:
            replace(path, name)
        flip(path)
        table[name, "flipped bit"] = read(sweep)
        path.write_bytes(content)
    assert read(sweep) == said
    for (name, kind), outcome in table.items():
        lines = [line for line in outcome.splitlines() if line and line not in said]
        print(f"{name:40} {kind:14} {lines[:1]}")
    assert [key for key, outcome in table.items() if outcome == said] == []
    files = "config.json", "tokenizer.model", "metrics.jsonl", "results.jsonl", "commands.jsonl"
    names = {name for name, _ in table}
    assert {"sweep.json", *files, "held_out/store.json", "checkpoints/2/data/metadata"} <= names


@pytest.mark.slow
def test_members_of_an_interrupted_sweep_are_compared_at_one_step(sweep, tmp_path):
    """A kill between the saves of two members leaves them at different steps."""
    sweep = shutil.copytree(sweep, tmp_path / "sweep")
    shutil.rmtree(sweep / "base=99" / "checkpoints" / "2")
    runs = find_runs([sweep])
    told = (said := []).append
    members_lib.read(runs, told)
    assert not any("other steps" in line for line in said)  # rows of before: all of step 2
    plan = runner.make_plan(runs, runner.Options(tasks=["kv"], documents=2))
    assert [member.step for member in plan.members] == [1, 1]
    assert any("(base=10 2, base=99 1); step 1 is used" in line for line in plan.notices)
    (sweep / "base=99" / "results.jsonl").unlink()
    call("evaluate.py", sweep / "base=99", "--tasks", "kv", "--documents", 2)
    members_lib.read(runs, told)
    assert any("other steps (base=10 at 2, base=99 at 1)" in line for line in said)


def test_every_bit_of_a_sweeps_record_counts(tmp_path, capsys):
    record = SweepRecord(config="tiny", overrides=("seed=0,1",), members=("a",), configs=("0f",))
    path = tmp_path / "sweep.json"
    path.write_text(record.to_json())
    outcomes = damaged(path, lambda: read_sweep(tmp_path), every=7)
    assert set(outcomes) <= {"refused", "told", record}
    content = json.loads(record.to_json())
    old = {name: content[name] for name in ("config", "overrides", "members")}
    path.write_text(json.dumps(old))
    assert read_sweep(tmp_path).members == record.members
    assert "older file" in capsys.readouterr().err


def test_every_bit_of_recorded_commands_counts(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_config(tiny_config(), [])
    lines = ["ropewalk train tiny --workdir a", "ropewalk evaluate a"]
    for line in [*lines, *lines]:
        run.record_command(line)
    assert run.read_commands() == lines
    outcomes = damaged(run.commands_path, run.read_commands, every=13)
    assert all(outcome in ("refused", "told", lines) for outcome in outcomes)
    rows = [json.loads(line) for line in run.commands_path.read_text().splitlines()]
    run.commands_path.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(ValueError, match="not what was written for this run"):
        run.record_command(lines[1])
    old = [json.dumps({**row, "file": None}) + "\n" for row in rows]
    run.commands_path.write_text("".join(old))
    assert run.read_commands() == lines


def test_every_bit_of_the_id_at_wandb_counts(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_config(tiny_config(), [])
    name = metrics._identity(run)
    assert metrics._identity(run) == name
    outcomes = damaged(tmp_path / "wandb.id", lambda: metrics._identity(run), every=3)
    assert {*outcomes} == {"told"}
    (tmp_path / "wandb.id").write_text("0123456789abcdef")  # an older file
    assert metrics._identity(run) == metrics._identity(run) == "0123456789abcdef"


def damaged(path: Path, reader: Callable[[], Any], every: int) -> Iterator[Any]:
    """Yield what `reader` returns, or "refused" or "told", after one of `every` bits is flipped."""
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), every):
        flip(path, bit)
        print_note.cache_clear()
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                outcome = reader()
            except ValueError:
                outcome = "refused"
        yield "told" if errors.getvalue() else outcome
        path.write_bytes(content)
