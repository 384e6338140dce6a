"""Features that MLA never rotates count wherever B_m is computed."""

import json

import pytest

from ropewalk.configs import find_config
from ropewalk.experiment.overrides import apply
from ropewalk.reporting.predictions import predict
from ropewalk.theory import decay, show
from tests.in_process import call

# Four unrotated pairs of eight are not enough to keep sixteen rotated ones' sum above zero.
SIZES = ["model.mla.qk_nope_head_dim=8", "model.mla.qk_rope_head_dim=32", "model.head_dim=40"]


@pytest.mark.parametrize("sizes", [[], SIZES])
def test_show_and_predictions_read_the_same_vector(monkeypatch, sizes):
    """A regression: `show` printed no violation, `evaluate.py` and `report.py` a number."""
    config = apply(find_config("mla_tiny"), [*sizes, "model.rotary.base=10"])
    monkeypatch.setattr(show, "load_configs", lambda: {"latent": config})
    command = "-m", "theory.show", "show", "latent", "--length", "4096", "--json"
    shown = json.loads(call(*command))
    (inv_freq,) = {
        tuple(head) for layer in config.model.position_table(64).inv_freq for head in layer
    }
    assert shown["inv_freq"] == list(inv_freq)
    assert shown["head_dim"] == 2 * len(inv_freq) == config.model.head_dim
    rotated = config.model.rope_head_dim // 2
    assert inv_freq[rotated:] == (0.0,) * (len(inv_freq) - rotated)
    # With half of the head unrotated, no sum of cosines is negative; with a fifth, many are.
    expected = decay.first_violation(inv_freq, 4096)
    assert (expected is None) == (not sizes)
    assert shown["first_negative"] == expected
    assert predict(config.model.position_table(64).inv_freq).first_violation == expected
