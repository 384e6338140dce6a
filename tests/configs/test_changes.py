"""`change` changes the named fields alone; `vary` makes the members of one field."""

import dataclasses

from ropewalk.configs.changes import change
from ropewalk.configs.tiny import configs
from ropewalk.model.rotary.nope import Nope

(tiny,) = configs


def test_a_change_reaches_any_depth_and_nothing_beside():
    changed = change(tiny, name="b", model=dict(num_layers=3, rotary=dict(base=7.0)))
    rotary = dataclasses.replace(tiny.model.rotary, base=7.0)
    model = dataclasses.replace(tiny.model, num_layers=3, rotary=rotary)
    assert changed == dataclasses.replace(tiny, name="b", model=model)
    # An object takes the place of another one, whatever fields that had.
    assert change(tiny, model=dict(rotary=Nope())).model.rotary == Nope()
    assert tiny.model.num_layers == 2
