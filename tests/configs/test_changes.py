"""`change` changes the named fields alone; `vary` makes the members of one field."""

import dataclasses

import pytest

from configs.changes import change, heads, vary
from configs.tiny import configs
from model.rotary.nope import Nope

(tiny,) = configs


def test_a_change_reaches_any_depth_and_nothing_beside():
    changed = change(tiny, name="b", model=dict(num_layers=3, rotary=dict(base=7.0)))
    rotary = dataclasses.replace(tiny.model.rotary, base=7.0)
    model = dataclasses.replace(tiny.model, num_layers=3, rotary=rotary)
    assert changed == dataclasses.replace(tiny, name="b", model=model)
    # An object takes the place of another one, whatever fields that had.
    assert change(tiny, model=dict(rotary=Nope())).model.rotary == Nope()
    assert tiny.model.num_layers == 2


def test_a_change_is_checked():
    with pytest.raises(TypeError, match="num_layer"):
        change(tiny, model=dict(num_layer=3))
    with pytest.raises(ValueError, match="num_steps"):
        change(tiny, train=dict(num_steps=0))


def test_heads_fill_a_models_width():
    model = change(tiny, model=heads(3, 16)).model
    assert (model.embed_dim, model.num_heads, model.num_kv_heads, model.head_dim) == (48, 3, 3, 16)


def test_members_of_one_field():
    assert vary("seed", (0, "1e1"), "stages=[]", "data.batch_size=4") == (
        ("stages=[]", "data.batch_size=4", "seed=0"),
        ("stages=[]", "data.batch_size=4", "seed=1e1"),
    )
    assert vary("seed", (1,)) == (("seed=1",),)
