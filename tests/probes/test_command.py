"""The command on a trained run, and the agreement of its questions with evaluate.py."""

import functools
import shutil

import jax
import numpy as np
import pytest

from ropewalk.evals import runner
from ropewalk.experiment import load
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.run import RunDirectory
from ropewalk.probes.__main__ import main
from ropewalk.probes.questions import capture_recall, grade_answers
from ropewalk.probes.subject import untrained
from ropewalk.training.step import init_state
from ropewalk.utils import plugins

# Slow, because a run is trained first.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained_run) -> RunDirectory:
    """A copy of the shared run, because the command writes to it."""
    path = tmp_path_factory.mktemp("probes") / "run"
    return RunDirectory(shutil.copytree(trained_run, path))


@pytest.mark.parametrize("task", ["kv", "lagcopy(text=natural,passage=8)"])
def test_graded_answers_are_those_of_evaluation(run, task):
    ((_, _, rows),) = runner.evaluate([run.path], runner.Options(tasks=[task], documents=8))
    captured, questions = capture_recall(load(run.path), task=task, documents=8)
    np.testing.assert_array_equal(questions.distances, rows["distance"])
    np.testing.assert_array_equal(grade_answers(captured, questions), rows["exact_match"])


def test_documents_that_fill_no_row_name_a_length(run, tmp_path):
    """A task of a user's file with seven tokens: two ids, three others, and the first two again."""
    path = tmp_path / "echo.py"
    path.write_text(
        "from ropewalk.data.task import Document, Task\nclass Echo(Task):\n    kind = 'retrieval'\n"
        "    def document(self, context, sample):\n"
        "        return Document.from_lists([1, 9, 8, 3, 4, 5, 9, 8], [[7, 1, 4]])\n"
    )
    plugins.allow(path)
    with pytest.raises(ValueError, match="--length 7"):
        capture_recall(load(run.path), task=f"{path}:Echo", documents=2)
    _, questions = capture_recall(load(run.path), task=f"{path}:Echo", documents=2, length=7)
    assert questions.distances.tolist() == [4, 4]


def test_the_untrained_model_is_that_of_the_first_update(run):
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    jax.tree.map(close, untrained(load(run.path)).params, init_state(run.config, 0).params)


def test_the_command_writes_arrays_figures_and_a_page(run, capsys):
    arguments = ["--documents", "8", "--step", "1", "--probes", "matching_keys", "--heads"]
    assert main([str(run.path), *arguments]) == 0
    path = run.path / "probes" / "matching_keys.npz"
    content = path.read_bytes()
    with np.load(path) as arrays:
        assert arrays["step"] == 1 and arrays["run_id"] == run_id(run, 1)
        assert arrays["zero_LN"].shape == (2, 2)
        assert arrays["gap_LNM"].shape == (2, 2, 63)
    assert (run.path / "probes" / "matching_keys.png").read_bytes()[1:4] == b"PNG"
    page, out = (run.path / "probes" / "inside.html").read_text(), capsys.readouterr().out
    assert "<svg" in page and "zero of B(m)" in out
    for sentence in ("tells keys apart", "the model answers"):
        assert sentence in " ".join(out.split()) and sentence in page
    assert main([str(run.path), "--task", "lagcopy", *arguments]) == 0
    assert path.read_bytes() == content and path.with_stem("lagcopy-matching_keys").exists()
