"""A config in a file of the user's, outside the repository."""

import json

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
        path = tmp_path / "new" / f"my_{name}.py"
        call("train.py", name, "--write", path, "seed=7", "train.learning_rate=0.5")
        allow(path)
        config = to_dict(find_config(str(path)))
        expected = to_dict(find_config(name)) | {"name": f"my_{name}", "seed": 7}
        expected["data"]["seed"] = 7
        expected["train"]["learning_rate"] = 0.5
        assert config == expected
    assert "# a whole number in [1, 10000]: blocks.\n" in path.read_text()


def test_one_of_several_configs_in_a_file_is_named(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(TWO)
    check = "--workdir", tmp_path / "run", "--check"
    assert "config: two, " in call("train.py", f"{path}:two", *check)
    for argument in (path, f"{path}:three"):
        output = call("train.py", argument, *check, status=2)
        assert f"{path} has 2 configs; write :NAME after it, one of one, two\n" in output
        assert output.count("\n") == 1


def test_commands_that_only_compute_take_a_file(tmp_path):
    """The frequencies of base 7, which no config of the repository has."""
    path = tmp_path / "two.py"
    path.write_text(TWO.replace('name="one"', 'name="one", model=dict(rotary=rope(base=7))'))
    path.write_text(f"from ropewalk.model.rotary.rope import Rope as rope\n{path.read_text()}")
    one = f"{path}:one"
    shown = json.loads(call("-m", "theory", "show", one, "--json"))
    assert shown["inv_freq"] == pytest.approx([7 ** (-i / 8) for i in range(8)], rel=1e-12)
    commands = "theory show", "tpu.aot --topology v5e:2x2"
    for command in (("-m", *command.split()) for command in commands):
        output = call(*command, path, status=2)
        assert f"{path} has 2 configs; write :NAME after it, one of one, two\n" in output
        assert output.count("\n") == 1
