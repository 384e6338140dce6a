import numpy as np

from model.rotary import expression, parse
from model.rotary.nope import Nope


def test_nothing_turns():
    np.testing.assert_array_equal(Nope().inv_freq(64), np.zeros(32))
    assert Nope().logit_scale == 1.0


def test_it_is_written_as_one_word():
    assert expression(Nope()) == "nope"
    assert parse("nope") == parse("nope()") == Nope()
