"""`--help-fields` knows every field that an override may set, and what stands of it in the code."""

import pytest

from configs import find_config
from experiment import overrides
from experiment.config import to_dict
from experiment.fields import fields, listed
from experiment.run import flatten


@pytest.mark.parametrize("name", ["small", "mla_tiny", "llama3"])
def test_every_field_is_listed_with_its_value(name):
    config = find_config(name)
    by_name = {field.name: field for field in fields(config)}
    flat = [path for path in flatten(to_dict(config)) if not path.endswith("class")]
    assert set(flat) <= set(by_name) and len(by_name) == len(set(by_name))
    # What is shown is what an override writes: all of it at once changes nothing.
    plain = [f"{path}={by_name[path].value}" for path in flat if path != "question"]
    assert overrides.apply(config, plain) == config


def test_a_field_says_what_it_may_be():
    by_name = {field.name: field for field in fields(find_config("tiny"))}
    kinds = {
        "model.num_layers": "whole number in [1, 10000]",
        "train.schedule": "cosine | constant | wsd",
        "model.window": "whole number of at least 1 | [whole number of at least 1 | none, ...] | "
        "none",
        "model.tie_embeddings": "true | false",
        "model.rotary": "variant | [variant | [variant, ...], ...]",
        "stages": "[[text, ...], ...]",
    }
    assert {name: by_name[name].kind for name in kinds} == kinds
    assert by_name["mesh.data"].meaning == "rows of the batch; parameters are copied."
    assert by_name["train.final_fraction"].meaning.startswith("last learning rate as a share")
    assert by_name["model.rotary.base"].meaning.startswith("base of the geometric series")
    assert all(field.meaning for field in by_name.values())
    assert max(map(len, listed(find_config("tiny")).splitlines())) <= 100
