"""Patterns over layers: variants and windows that differ from layer to layer."""

import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.model.config import NO_WINDOW


@pytest.fixture(scope="module")
def four_layers():
    return overrides.apply(find_config("tiny"), ["model.num_layers=4"])


def test_a_pattern_repeats_from_the_first_layer_on(four_layers):
    config = overrides.apply(
        four_layers, ["model.rotary=[rope(base=100),rope(base=1e4),nope]", "model.window=[8,none]"]
    )
    inv_freq_LKR = config.model.position_table(64).inv_freq
    # The slowest of 8 pairs rotates base ** (-14 / 16) radians a token.
    np.testing.assert_allclose(
        inv_freq_LKR[:, 0, -1], [100**-0.875, 1e4**-0.875, 0.0, 100**-0.875], rtol=1e-12
    )
    assert config.model.position_table(64).window.tolist() == [8, NO_WINDOW, 8, NO_WINDOW]


def test_positions_do_not_change_the_architecture(four_layers):
    """Programs are compiled on the architecture: another base or window must not recompile."""
    changes = ["model.rotary=[rope(base=100),nope]", "model.window=8"]
    changed = overrides.apply(four_layers, changes).model
    assert changed != four_layers.model and changed.architecture == four_layers.model.architecture
    deeper = overrides.apply(four_layers, ["model.num_layers=5"]).model
    assert deeper.architecture != four_layers.model.architecture
