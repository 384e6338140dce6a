"""What exact phases are compared with stands in for them."""

import numpy as np

from benchmarks.phases import float32_cos_sin
from configs.small import configs
from model.positions import cos_sin, position_table


def test_the_float32_product_agrees_at_short_positions():
    (small,) = configs
    table = position_table(small.model, 256)
    positions_BT = np.arange(256, dtype=np.int32)[None]
    arguments = (table.cycles_hi[0], table.cycles_lo[0], positions_BT)
    for exact, product in zip(cos_sin(*arguments), float32_cos_sin(*arguments), strict=True):
        assert exact.shape == product.shape
        np.testing.assert_allclose(exact, product, atol=1e-4)
