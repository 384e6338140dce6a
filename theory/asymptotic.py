"""Rules of thumb: closed formulas of a base and a length."""

import math

# First zero of Ci(x) = -∫_x^∞ cos t / t dt.
CI_ZERO = 0.6165054856207162


def smallest_base(length: float) -> float:
    """Return length / 0.6165…, the limit of b* for infinite head_dim. Real heads need far more."""
    return length / CI_ZERO


def critical_dimension(base: float, head_dim: int, trained_length: int) -> int:
    """Return the number of features whose pairs complete a cycle in the trained length.

    2 ⌈head_dim/2 · log_base(trained_length / 2π)⌉, within [0, head_dim] (Liu et al., 2310.05209).
    In a longer context, the other pairs rotate by angles that did not occur in training.
    """
    pairs = head_dim / 2 * math.log(trained_length / (2 * math.pi)) / math.log(base)
    return int(min(max(2 * math.ceil(pairs), 0), head_dim))
