"""Literals: (b s^(d/(d-2)))^(-2i/d) by mpmath; transformers 5.23 `rope_type="dynamic"` (float32).

With `factor=1` transformers' dynamic scaling at 8 times the trained length is NTK-aware by 8.
"""

import numpy as np

from model.rotary.ntk_aware import NtkAware


def test_base_500_stretched_twice():
    np.testing.assert_allclose(
        NtkAware(base=500.0, factor=2.0).inv_freq(16),
        [
            1.0, 0.41650907116814661, 0.17347980636535222, 0.072255913015662779,
            0.030095243216560099, 0.012534941798708912, 0.0052209169657270258,
            0.0021745592760409818,
        ],
        rtol=1e-14,
    )  # fmt: skip


def test_as_transformers_does():
    inv_freq = NtkAware(base=10_000.0, factor=8.0).inv_freq(128)
    np.testing.assert_allclose(
        inv_freq[[0, 1, 32, 63]], [1.0, 0.837848008, 0.00347766397, 1.44347741e-05], rtol=2e-6
    )
