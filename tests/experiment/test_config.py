"""A config survives JSON, and JSON can only make configs."""

import dataclasses
import json

import pytest

from configs import find_config, load_configs
from experiment.config import from_dict, to_dict


@pytest.mark.parametrize("name", sorted(load_configs()))
def test_every_preset_survives_json(name):
    config = find_config(name)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_the_schedule_is_named_by_its_import_path():
    record = to_dict(find_config("tiny"))["model"]["rotary"]
    assert record["class"] == "model.rotary.rope.Rope"
    assert record["base"] == 10000.0


def test_a_config_from_before_a_field_means_what_it_meant():
    config = find_config("tiny")
    record = to_dict(config)
    assert record["data"].pop("documents") == 2
    assert from_dict(record).data == dataclasses.replace(config.data, documents=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "os.system"}, "not one of this repository's"),
        ({"class": "subprocess.Popen"}, "not one of this repository's"),
        ({"class": "model.rotary.gone.Gone"}, "does not exist here"),
        ({"class": "model.rotary.parse"}, "not a config class"),
        ({"theta": 3.0}, "no field 'theta'"),
    ],
)
def test_a_config_file_cannot_name_anything_else(change, message):
    record = to_dict(find_config("tiny"))
    record["model"]["rotary"] |= change
    with pytest.raises(ValueError, match=message):
        from_dict(record)
