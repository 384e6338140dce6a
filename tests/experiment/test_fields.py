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
    found = {field.name: field for field in fields(config)}
    flat = [each for each in flatten(to_dict(config)) if not each.endswith("class")]
    assert set(flat) <= set(found) and len(found) == len(set(found))
    # What is shown is what an override writes: all of it at once changes nothing.
    plain = [f"{each}={found[each].value}" for each in flat if each != "question"]
    assert overrides.apply(config, plain) == config


def test_a_field_says_what_it_may_be():
    found = {field.name: field for field in fields(find_config("tiny"))}
    kinds = {
        "model.num_layers": "whole number in [1, 10000]",
        "train.schedule": "cosine | constant | wsd",
        "model.window": "whole number of at least 1 | [whole number of at least 1 | none, ...] | "
        "none",
        "model.tie_embeddings": "true | false",
        "model.rotary": "variant | [variant | [variant, ...], ...]",
        "stages": "[[text, ...], ...]",
    }
    assert {name: found[name].kind for name in kinds} == kinds
    assert found["mesh.data"].meaning == "rows of the batch; parameters are copied."
    assert found["train.final_fraction"].meaning.startswith("last learning rate as a share")
    assert found["model.rotary.base"].meaning.startswith("base of the geometric series")
    assert all(field.meaning for field in found.values())
    assert max(map(len, listed(find_config("tiny")).splitlines())) <= 100
