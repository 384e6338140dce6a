"""Rules of thumb: what closed formulas say of a base and a length."""

import math

# First zero of Ci(x) = -∫_x^∞ cos t / t dt.
CI_ZERO = 0.6165054856207162


def smallest_base(length: float) -> float:
    """length / 0.6165…: b* as head_dim grows without end. Real heads need far more."""
    return length / CI_ZERO


def critical_dimension(base: float, head_dim: int, trained_length: int) -> int:
    """Features whose pairs complete a cycle in the trained length (Liu et al., 2310.05209).

    2 ⌈head_dim/2 · log_base(trained_length / 2π)⌉, within [0, head_dim]: the others meet angles
    they were never trained on as soon as the context grows.
    """
    pairs = head_dim / 2 * math.log(trained_length / (2 * math.pi)) / math.log(base)
    return int(min(max(2 * math.ceil(pairs), 0), head_dim))
