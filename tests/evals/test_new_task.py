"""A task is one file, also of the user's own; a received run executes none."""

import csv
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from ropewalk import evals, evaluate
from ropewalk.data.config import DataConfig
from ropewalk.data.mixture import mixture, retrieval_task
from ropewalk.data.task import TaskContext
from ropewalk.evals.tasks.lagcopy import Lagcopy
from ropewalk.experiment.config import EvalConfig
from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting import writing
from ropewalk.reporting.task_view import view_of
from ropewalk.utils import plugins
from tests.in_process import run_command
from tests.models import write_run
from tests.test_evaluate import CONFIG

ECHO = '''"""Echo: a few ids, and at once the same again."""

import dataclasses

import numpy as np

from ropewalk.data.task import Document, Task
from ropewalk.reporting.task_view import Curve, Plot, TaskView


@dataclasses.dataclass(frozen=True, kw_only=True)
class Echo(Task):
    kind = "retrieval"
    n: int = 2

    def least_length(self, context):
        return 2 * self.n

    def document(self, context, sample):
        ids = sample.random.choice(context.tokenizer.fillers, self.n)
        start = np.arange(self.n + 1, 2 * self.n + 1)
        answers = np.stack([start, np.ones_like(start), np.full_like(start, self.n - 1)], axis=1)
        return Document.from_lists([context.tokenizer.bos_id, *ids, *ids], answers)


class EchoView(TaskView):
    plot = Plot(name="echo_gain", section="Echoes", alternative="Loudness.", xlabel="distance",
        caption="How loud an echo is.", ylabels=("loudness",))

    def columns(self, rows, trained):
        return {"loudness": float(-rows["nll"].mean())}

    def curves(self, trained, rows):
        return [Curve.from_means([self.task.n - 1], [trained["nll"].mean()], [0.1])]
'''


@pytest.fixture
def echo(tmp_path):
    """A task of the user's file; tests/test_trial_changes.py adds one to the tree."""
    path = tmp_path / "mine.py"
    path.write_text(ECHO)
    plugins.allow(path)
    yield f"{path}:Echo(n=3)"
    for cached in (evals.all_tasks, evals.parse, view_of, retrieval_task):
        cached.cache_clear()


def test_a_file_of_the_user_is_asked_shown_and_trained_on(echo, tmp_path, tokenizer, capsys):
    run = RunDirectory(tmp_path / "run")
    write_run(run.path, CONFIG, tokenizer.model)
    assert evaluate.main([str(run.path), "--tasks", echo, "--documents", "16"]) == 0
    shown = capsys.readouterr().out
    assert "Effective context" in shown and "NOT_LEARNED" in shown
    assert echo[-8:] in shown.replace("\n", "").replace(" ", "")

    out = tmp_path / "report.html"
    writing.write([run.path], out, "python report.py run")
    page = out.read_text("utf-8")
    assert "Echoes" in page and "How loud an echo is." in page
    (line,) = csv.DictReader(out.with_name("results.csv").open())
    assert line["task"] == echo and float(line["loudness"]) < 0
    assert line["score"] == "0"

    tasks = dict(source="retrieval", retrieval_tasks=(echo, "kv"))
    rows = mixture(DataConfig(context_length=8, batch_size=1, **tasks), (), tokenizer)
    for row in (rows[number] for number in range(0, 8, 2)):
        assert row["tokens"][1:4].tolist() == row["targets"][3:6].tolist()
        assert np.flatnonzero(row["loss_mask"]).tolist() == [3, 4, 5]


def test_where_a_file_lies_decides_no_document(echo, tmp_path, tokenizer):
    moved = tmp_path / "elsewhere" / "mine.py"
    moved.parent.mkdir()
    moved.write_text(ECHO)
    plugins.allow(moved)
    data = DataConfig(context_length=32, batch_size=1)
    context = TaskContext(data=data, tokenizer=tokenizer, length=32, seed=0)
    names = echo, f"{moved}:Echo(n=3)"
    here, there = (evals.parse(name).documents(context, range(4)) for name in names)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
    first, second = (Lagcopy(text="natural", path=f"{folder}/t.jsonl") for folder in ("a", "/b/c"))
    assert first.key(context, 1) == second.key(context, 1)
    assert first.key(context, 1) != Lagcopy(text="natural", path="a/u.jsonl").key(context, 1)


def test_a_received_run_executes_nothing(tmp_path, tokenizer, monkeypatch, capsys):
    """Its config and its rows name a file, and its directory is called as that file is."""
    monkeypatch.chdir(tmp_path)
    Path("recv").mkdir()
    Path("recv/a.py").write_text("open('executed', 'w')")
    received = EvalConfig(tasks=("recv/a.py:Echo",), documents=1)
    write_run("recv/a.py-run", dataclasses.replace(CONFIG, evals=received), tokenizer.model)
    refused = "recv/a.py is code that the command line does not name"
    assert run_command("evaluate.py recv/a.py-run", monkeypatch) == 2
    assert refused in capsys.readouterr().err
    assert run_command("evaluate.py recv/a.py-run --tasks kv", monkeypatch) == 0
    results = Path("recv/a.py-run/results.jsonl")
    bent = results.read_text().replace("rope(base=10000)", "recv/a.py:Bent")
    results.write_text(re.sub(r',"file":"[^"]*"', "", bent))  # an older file has no digest
    assert run_command("report.py recv/a.py-run", monkeypatch) == 2
    assert refused in capsys.readouterr().err
    assert not Path("executed").exists()
