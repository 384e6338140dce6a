"""`--help-fields` knows every field that an override may set, and what stands of it in the code."""

import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.config import flatten, to_dict
from ropewalk.experiment.dotted import fields


@pytest.mark.parametrize("name", ["small", "mla_tiny", "llama3"])
def test_every_field_is_listed_with_its_value(name):
    config = find_config(name)
    by_name = {field.name: field for field in fields(config)}
    flat = [path for path in flatten(to_dict(config)) if not path.endswith("class")]
    assert set(flat) <= set(by_name) and len(by_name) == len(set(by_name))
    # What is shown is what an override writes: all of it at once changes nothing.
    plain = [f"{path}={by_name[path].value}" for path in flat if path != "question"]
    assert overrides.apply(config, plain) == config
