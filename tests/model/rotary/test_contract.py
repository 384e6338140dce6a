"""The contract of every variant in `model/rotary/`."""

import contextlib
import dataclasses
import json
import re

import numpy as np
import pytest

from ropewalk.configs import load_configs
from ropewalk.experiment.config import from_dict, to_dict
from ropewalk.model.rotary import Rotary, expression, parse, variants
from ropewalk.model.rotary.recorded import Recorded

# One example of each variant, from the configs, or else the line of its docstring that is to be
# copied: this file stays as it is.
WRITTEN = {name: re.search("write: `(.*?)`", cls.__doc__ or "") for name, cls in variants().items()}
EXAMPLES = {name: match[1] for name, match in WRITTEN.items() if match} | {
    type(config.model.rotary).__module__.rpartition(".")[2]: config.model.rotary
    for config in load_configs().values()
}
# No config uses this one: it replaces a variant from a user's file.
EXAMPLES["recorded"] = Recorded(
    name="mine.py:Bent(strength=2)", values=tuple(0.9**i for i in range(32))
)
NAMES = sorted(variants())
HEAD_DIM = 64


def example(name: str, head_dim: int = HEAD_DIM):
    """The example; lists with one number per pair are cut or extended to fit a head."""
    rotary = EXAMPLES[name]
    rotary = parse(rotary) if isinstance(rotary, str) else rotary
    rotary = dataclasses.replace(rotary, rotary_fraction=1.0)
    lists = {
        field.name: getattr(rotary, field.name)
        for field in dataclasses.fields(rotary)
        if isinstance(getattr(rotary, field.name), tuple)
    }
    fitting = {
        key: (values + head_dim * values[-1:])[: head_dim // 2] for key, values in lists.items()
    }
    return dataclasses.replace(rotary, **fitting)


def test_every_variant_has_an_example():
    assert set(NAMES) == set(EXAMPLES), "write `Cookbook:` into its docstring, as in rope.py"


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_the_file_names_its_only_class(name):
    """The expression name is the file's; the class is the same words in capitals."""
    cls = variants()[name]
    assert cls.__name__ == "".join(word.capitalize() for word in name.split("_"))
    assert cls.__module__ == f"ropewalk.model.rotary.{name}"


@pytest.mark.parametrize("head_dim", [4, 64, 128])
def test_frequencies_are_float64_and_fastest_first(name, head_dim):
    inv_freq = example(name, head_dim).inv_freq(head_dim)
    assert inv_freq.dtype == np.float64
    assert inv_freq.shape == (head_dim // 2,)
    assert np.all(np.diff(inv_freq) <= 0)
    assert np.all((inv_freq >= 0) & (inv_freq <= np.pi))  # above pi, a pair would turn backward


def test_expression_and_json_read_back_as_the_same_variant(name):
    for change in ({}, {"rotary_fraction": 0.5}, {"log_n": "train"}):
        rotary = dataclasses.replace(example(name), **change)
        assert parse(expression(rotary)) == rotary
        restored = from_dict(json.loads(json.dumps(to_dict(rotary))))
        assert restored == rotary and type(restored) is type(rotary)


PARAMETERS = [
    (name, field.name)
    for name, cls in variants().items()
    for field in dataclasses.fields(cls)
    if field.name not in Rotary.__dataclass_fields__
    # Numbers by another way; a label; how training changes the vector (test_learned.py).
    and field.name not in ("file", "name", "learning_rate")
]


def other_values(value):
    """Values that a parameter might have instead; not each is valid everywhere."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, tuple):
        return [tuple(scale * item for item in value) for scale in (2, 0.5)]
    return [0.5] if value is None else [2 * value, value / 2]


@pytest.mark.parametrize("name, parameter", PARAMETERS)
def test_every_parameter_matters(name, parameter):
    """Another value of any parameter gives another vector or another scale."""

    def numbers(rotary):
        rotary = rotary.at_length(2**12)
        return [*rotary.inv_freq(HEAD_DIM), rotary.logit_scale, rotary.unrotated_logit_scale]

    rotary = example(name)
    changed = []
    for value in other_values(getattr(rotary, parameter)):
        with contextlib.suppress(ValueError):
            changed.append(numbers(dataclasses.replace(rotary, **{parameter: value})))
    assert any(other != numbers(rotary) for other in changed)


@pytest.mark.parametrize("name", [name for name, field in PARAMETERS if field == "factor"])
def test_factor_one_changes_nothing(name):
    rotary = example(name)
    plain = parse(f"rope(base={rotary.base})")
    once = dataclasses.replace(rotary, factor=1.0)
    np.testing.assert_array_equal(once.inv_freq(HEAD_DIM), plain.inv_freq(HEAD_DIM))
    assert once.logit_scale == 1.0


def test_a_fraction_is_the_smaller_variant_and_zeros(name):
    """The exponent runs over the features that turn: half of 64 is all of 32 (GPT-NeoX)."""
    if name == "p_rope":  # its exponent runs over the whole head: that is all it is
        return
    rotary = example(name, 32)
    half = dataclasses.replace(rotary, rotary_fraction=0.5).inv_freq(64)
    np.testing.assert_array_equal(half[:16], rotary.inv_freq(32))
    np.testing.assert_array_equal(half[16:], np.zeros(16))
