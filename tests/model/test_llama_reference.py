"""Our logits against transformers' classes for the same weights.

LITERALS are what transformers 5.23 with torch 2.13 gave for the exports of these models of noise;
`tests/interop` compares all of them live.
"""

import numpy as np
import pytest

from ropewalk.model import transformer
from tests.interop.weights_helpers import CASES, noise

TOKENS = (np.arange(2 * 40).reshape(2, 40) * 37 + 11) % 96
# logits[row, position, id], and the sum of all |logits|.
INDICES = [(0, 0, 0), (0, 7, 95), (1, 39, 2)]
LITERALS = {
    "gqa": ([2.386199, 0.8169594, -2.643589], 9899.8102),
    "tied": ([-0.8778518, 0.4334103, -1.455853], 9639.0324),
    "window by layer": ([2.386199, 0.5410424, 0.2574874], 10251.58),
    "gpt-neox": ([-3.072673, -1.210579, -0.6218001], 16623.103),
    "gemma 3": ([-3.037883, -0.2646303, -0.6750336], 23201.005),
    "olmo 2": ([-0.5283527, 0.1150825, 1.415923], 12126.556),
    "mla": ([0.6173583, 1.707997, -1.06183], 10885.046),
    "mla without a latent of queries": ([0.5305434, 2.164986, -1.459872], 11736.44),
    "mla with yarn": ([0.6173583, 1.20456, -2.459624], 10796.27),
}


@pytest.mark.parametrize("name", LITERALS)
def test_logits_are_the_recorded_ones_of_transformers(name):
    model, (values, absolute_sum) = CASES[name][2], LITERALS[name]
    table = model.position_table(TOKENS.shape[1])
    logits_BTV = np.asarray(transformer.document_logits(model, noise(model), table, TOKENS))
    np.testing.assert_allclose([logits_BTV[index] for index in INDICES], values, atol=1e-4)
    assert np.abs(logits_BTV.astype(np.float64)).sum() == pytest.approx(absolute_sum, rel=1e-5)
