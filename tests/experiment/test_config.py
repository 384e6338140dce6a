"""A config survives JSON, and JSON can only make configs."""

import json

import pytest

from ropewalk.configs import find_config, load_configs
from ropewalk.experiment.config import first_difference, from_dict, to_dict
from tests.models import tiny_config


@pytest.mark.parametrize("name", sorted(load_configs()))
def test_every_preset_survives_json(name):
    config = find_config(name)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_a_field_that_was_renamed_is_read_under_its_old_name():
    record = to_dict(find_config("tiny"))["model"]
    del record["masked_distances"]
    model = from_dict(record | {"num_layers": 1, "blind": [3, 4]})
    assert model.masked_distances == (3, 4)


def test_a_removed_field_is_read_with_its_last_value_only():
    config = find_config("tiny")
    record = to_dict(config.data)
    assert from_dict(record | {"documents": 2}) == config.data
    assert from_dict(to_dict(config.model) | {"learned_frequencies": False}) == config.model
    tracked = to_dict(config.train) | {"tracking": ["trackio", "wandb"]}
    assert from_dict(tracked).tracking == ("wandb",)
    with pytest.raises(ValueError, match="DataConfig has documents=1, which this version does not"):
        from_dict(record | {"documents": 1})


def test_a_run_with_learned_frequencies_is_refused_in_one_line():
    record = to_dict(find_config("tiny"))["model"]
    record["rotary"] = {"class": "model.rotary.learned.Learned", "base": 10.0}
    with pytest.raises(ValueError, match=r"model.rotary.learned.Learned', which is no .* version"):
        from_dict(record)


def test_a_folder_of_text_has_several_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, *same, other = (
        tiny_config("data.source=files", f"data.path={path}")
        for path in ("text", "./text/", "a/../text", tmp_path / "text", "text2")
    )
    assert [first_difference(run, config) for config in same] == [None] * 3
    assert first_difference(run, other) == ("data.path", "text", "text2")
