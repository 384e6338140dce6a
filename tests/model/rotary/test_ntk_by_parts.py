"""Literals: (1 - γ) θ / s + γ θ with the paper's γ(r), r = L θ / 2π, by mpmath with 40 digits."""

import numpy as np
import pytest

from model.rotary.ntk_by_parts import NtkByParts

REFERENCE = [
    (
        {"base": 100.0, "factor": 8.0, "original_context_length": 64},
        [
            0.38427989719826254, 0.14533741462652649, 0.059353257398875086, 0.02630088421925175,
            0.012552476391337464, 0.0070292665648793635, 0.0039528470752104742,
            0.0022228492625486535,
        ],
    ),
    (
        {"base": 500.0, "factor": 8.0, "original_context_length": 2048},
        [
            1.0, 0.45986329782677028, 0.21147425268811282, 0.096421171641053627,
            0.022728238538430331, 0.0058814336271794007, 0.0017381231556828032,
            0.000594902348855212,
        ],
    ),
    (
        {
            "base": 10_000.0, "factor": 4.0, "original_context_length": 512, "beta_slow": 2.0,
            "beta_fast": 8.0,
        },
        [
            1.0, 0.31622776601683793, 0.1, 0.010185916357881301, 0.0025, 0.00079056941504209483,
            0.00025, 7.9056941504209483e-5,
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize("parameters, expected", REFERENCE)
def test_frequencies_are_the_papers(parameters, expected):
    variant = NtkByParts(**parameters)
    np.testing.assert_allclose(variant.inv_freq(16), expected, rtol=1e-14)
    assert variant.logit_scale == 1.0
