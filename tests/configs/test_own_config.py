"""A config in a file of the user's, outside the repository."""

import json
from pathlib import Path

import pytest

from ropewalk.configs import _modules, find_config, load_configs
from ropewalk.experiment.dotted import apply
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.plugins import allow
from tests.in_process import call

TWO = """
from ropewalk.configs import find_config
from ropewalk.configs.changes import change

tiny = find_config("tiny")
configs = [change(tiny, name="one"), change(tiny, name="two", model=dict(num_layers=3))]
"""


@pytest.mark.parametrize("suffix", ["py", "toml"])
def test_a_written_config_is_the_config_with_its_changes(suffix, tmp_path):
    """Of no rotation in a half, latent attention, members, stages, and a pattern of heads."""
    names = "mla_tiny", "base_30m", "tiny", "figure7_pretrain_cpu", "gradient_curriculum_paper"
    for name in (*names, "language_model_variants", "drope_cpu", "explicit"):
        path = tmp_path / "new" / f"my_{name}.{suffix}"
        changes = ["seed=7", "train.learning_rate=0.5", "question='Is \"x, y\" = [1?'"]
        if name == "tiny":
            changes += ["model.rotary=[[rope(base=10)],nope]", "model.window=[none,8]"]
        call("train.py", name, "--write", path, *changes)
        allow(path)
        config, expected = find_config(str(path)), find_config(name)
        assert config == apply(expected, [*changes, f"name=my_{name}"])
    assert "# a whole number in [1, 10000]: blocks.\n" in path.read_text()


@pytest.mark.long
def test_a_toml_file_trains_as_the_same_overrides(tmp_path, monkeypatch, tiny_data):
    monkeypatch.chdir(tmp_path)
    (prepared,) = tiny_data
    root = prepared.partition("=")[2]
    Path("mine.toml").write_text(
        f'''config = "tiny"
        question = "Why, \'really\'?"
        [model]
        rotary = "rope(base=7)"
        window = "none"
        [train]
        num_steps = 2
        [data]
        prepared_root = "{root}"
        '''
    )
    call("train.py", "mine.toml", "--workdir", "run", "train.save_every=1")
    changes = ["model.rotary.base=7", "train.num_steps=2", "train.save_every=1", prepared]
    changes += ["name=mine", "question=Why, 'really'?"]
    assert RunDirectory("run").config == apply(find_config("tiny"), changes)
    call("sweep.py", "mine.toml", "--workdir", "sweep", "seed=0,1", "--list-members")
    shown = json.loads(call("-m", "theory", "show", "mine.toml", "--json"))
    assert shown["inv_freq"] == pytest.approx([7 ** (-i / 8) for i in range(8)], rel=1e-12)


def test_help_lists_what_people_start_with_and_all_on_request():
    short, long = call("train.py", "--help"), call("train.py", "--help", "--all")
    listed = [sum(f"\n  {name} " in text for name in load_configs()) for text in (short, long)]
    assert listed == [10, len(load_configs())] and f"--all lists all {listed[1]}" in short
    configs = [config for module in _modules() for config in getattr(module, "configs", ())]
    assert len(configs) == listed[1], "two configs have one name"


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
