"""With whatever versions are installed, Colab's above all: train, go on, evaluate."""

import shutil

import pytest

from ropewalk.experiment.run import RunDirectory
from tests.training.helpers import assert_same_run

pytestmark = pytest.mark.colab


def test_tiny_trains_goes_on_and_is_evaluated(tmp_path, tiny_data, run_script):
    finished, stopped = tmp_path / "whole", tmp_path / "stopped"
    command = ("train.py", "tiny", *tiny_data, "--workdir")
    run_script(*command, finished)
    shutil.copytree(finished, stopped)
    assert RunDirectory(stopped).steps()[-2:] == [15, 20]
    shutil.rmtree(stopped / "checkpoints/20")
    assert "resuming from step 15" in run_script(*command, stopped).stderr
    assert_same_run(finished, stopped)
    printed = run_script("evaluate.py", finished).stdout
    assert all(task in printed for task in ("kv", "lagcopy", "perplexity"))
