"""A config in a file of the user's, outside the repository."""

import pytest

from ropewalk.configs import find_config
from ropewalk.experiment.config import to_dict
from ropewalk.utils.plugins import allow
from tests.in_process import call

TWO = """
from ropewalk.configs import find_config
from ropewalk.configs.changes import change

tiny = find_config("tiny")
configs = [change(tiny, name="one"), change(tiny, name="two", model=dict(num_layers=3))]
"""


def test_a_written_config_is_the_config_with_its_changes(tmp_path):
    for name in ("mla_tiny", "base_30m", "language_model", "tiny"):
        path = tmp_path / f"my_{name}.py"
        call("train.py", name, "--write", path, "seed=7", "train.learning_rate=0.5")
        allow(path)
        config = to_dict(find_config(str(path)))
        expected = to_dict(find_config(name)) | {"name": f"my_{name}", "seed": 7}
        expected["data"]["seed"] = 7
        expected["train"]["learning_rate"] = 0.5
        assert config == expected
    assert "# a whole number in [1, 10000]: blocks.\n" in path.read_text()
    output = call("train.py", "tiny", "--write", path, status=2)
    assert f"{path}: File exists" in output and output.count("\n") == 1


def test_one_of_several_configs_in_a_file_is_named(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(TWO)
    check = "--workdir", tmp_path / "run", "--check"
    assert "config: two, " in call("train.py", f"{path}:two", *check)
    for argument in (path, f"{path}:three"):
        output = call("train.py", argument, *check, status=2)
        assert f"write one of {path}:one, {path}:two" in output and output.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no file"),
        ("import nothing_like_this", "cannot be run"),
        ("config = 1", "defines no list of configs"),
        ("configs = [3]", "configs has 3"),
    ],
)
def test_a_file_without_configs_is_refused_in_one_line(tmp_path, content, expected):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    output = call("train.py", path, "--workdir", tmp_path / "run", "--check", status=2)
    assert expected in output and str(path) in output and output.count("\n") == 1
