"""From run directories to a page."""

import json
import shutil

import pytest

from configs import find_config
from experiment import load, overrides
from experiment.run import RunDirectory
from probes.questions import ask
from probes.viewer.__main__ import main
from probes.viewer.arrays import recalls
from tests.probes.viewer.test_page import inner
from training.loop import train
from training.plan import make_plan

# Slow: runs are trained first.
pytestmark = [pytest.mark.usefixtures("unoptimized"), pytest.mark.slow]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_data) -> str:
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    given = [*tiny_data, "train.num_steps=2", "train.save_every=1"]
    assert train(make_plan([overrides.apply(find_config("tiny"), given)], [directory]))
    return str(directory.path)


def test_two_runs_stand_side_by_side_even_if_they_are_alike(run, tmp_path, capsys):
    out, other = tmp_path / "view.html", str(tmp_path / "other")
    shutil.copytree(run, other)
    assert main([run, other, "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    said = json.loads(inner(out.read_text(encoding="utf-8"), "page"))
    assert [member["name"] for member in said["members"]] == [run, other]
    assert [len(row["tokens"]) for row in said["rows"]] == [64, 64]


def test_a_text_longer_than_the_trained_context_is_shown(run, tmp_path):
    out = tmp_path / "view.html"
    (tmp_path / "text").write_text("def attend(query, key): " * 40, encoding="utf-8")
    given = ["--file", str(tmp_path / "text"), "--length", "100", "--heads", "1"]
    with pytest.warns(UserWarning, match="100 tokens, and the model was trained on rows of 64"):
        assert main([run, *given, "--out", str(out)]) == 0
    said = json.loads(inner(out.read_text(encoding="utf-8"), "page"))
    assert len(said["rows"][0]["tokens"]) == 100 and said["members"][0]["trained"] == 64
    assert said["members"][0]["heads"] == [[0, 1], [1, 1]]


def test_the_questions_of_a_document_are_its_recalls(run):
    inside, questions = ask(load(run), documents=4)
    for row in range(4):
        # Of a question at the very end the row does not have the answer.
        mine = (questions.row_Q == row) & (questions.query_Q < inside.length - 1)
        assert mine.any()
        asked = zip(questions.query_Q[mine].tolist(), questions.key_Q[mine].tolist(), strict=True)
        assert set(recalls(inside.tokens_BT[row])) >= set(asked)
