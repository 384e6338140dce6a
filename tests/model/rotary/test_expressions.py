"""Mistakes in an expression are named, with the nearest valid word."""

import pytest

from ropewalk.model.rotary import expression, parse
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.ntk_aware import NtkAware
from ropewalk.model.rotary.rope import Rope


@pytest.mark.parametrize(
    "rotary, text",
    [
        (Rope(base=10_000.0), "rope(base=10000)"),
        (Nope(), "nope"),
        (Rope(base=1e6), "rope(base=1e+06)"),
        (Rope(base=10.0, rotary_fraction=0.25), "rope(base=10,rotary_fraction=0.25)"),
        (Rope(base=10.0, log_n="train"), "rope(base=10,log_n=train)"),
        (Rope(base=1 / 3 + 10), "rope(base=10.333333333333334)"),
        (NtkAware(base=500.0, factor=8.0), "ntk_aware(base=500,factor=8)"),
    ],
)
def test_expression(rotary, text):
    assert expression(rotary) == text
    assert parse(text) == rotary
