"""Wavelength of each pair of features of a rotary variant in a context, and its warnings."""

import math
from typing import NamedTuple

import numpy as np

from ropewalk.model import rotary
from ropewalk.model.rotary.base import Rotary, geometric_inv_freq
from ropewalk.model.rotary.p_rope import PRope
from ropewalk.theory import decay
from ropewalk.utils.messages import counted


class Head(NamedTuple):
    """A head and the context in which a variant is examined.

    Attributes:
      dim: features that the variant applies to, even.
      num_unrotated: further features, which it does not apply to (MLA's).
      length: context in tokens.
    """

    dim: int = 128
    num_unrotated: int = 0
    length: int = 4096


class Report(NamedTuple):
    """A variant in a context of `length` tokens.

    Attributes:
      name: its expression.
      base: None if it has none.
      inv_freq: float64 `[head_dim // 2]`, radians per token, zeros for unrotated pairs.
      bands: for each pair "kept", "ramp" or "interpolated" relative to the variant's base
        unstretched, "unrotated", or "" if the variant has no base.
      stretch: how many times slower each pair is than at that base; nan if there is none.
      first_negative: the first distance m < length at which sum_i cos(m inv_freq_i) < 0, or None.
      wavelength: tokens per cycle, in either direction; inf for an unrotated pair.
      turns: cycles completed within `length` tokens, in either direction.
    """

    name: str
    base: float | None
    head_dim: int
    length: int
    rotary_dim: int
    inv_freq: np.ndarray
    logit_scale: float
    bands: list[str]
    stretch: np.ndarray
    first_negative: int | None
    warnings: list[str]
    wavelength: np.ndarray
    turns: np.ndarray


def make_report(variant: Rotary, head: Head) -> Report:
    """Report on `variant`; a dynamic one is that of a row of `head.length` tokens.

    Raises:
      ValueError: if the variant does not fit the head.
    """
    name = rotary.expression(variant)
    variant = variant.at_length(head.length)
    inv_freq = np.append(variant.inv_freq(head.dim), np.zeros(head.num_unrotated // 2))
    first_negative = decay.first_violation(inv_freq, head.length)
    stretch = _stretch(variant, head.dim, inv_freq)
    speed = np.abs(inv_freq)  # learned pairs may rotate backwards
    with np.errstate(divide="ignore"):
        wavelength = 2 * np.pi / speed
    return Report(
        name=name,
        base=getattr(variant, "base", None),
        head_dim=2 * len(inv_freq),
        length=head.length,
        rotary_dim=2 * int(np.count_nonzero(inv_freq)),
        inv_freq=inv_freq,
        logit_scale=variant.logit_scale,
        bands=_bands(variant, inv_freq, stretch),
        stretch=stretch,
        first_negative=first_negative,
        warnings=_warnings(variant, head, speed, first_negative),
        wavelength=wavelength,
        turns=head.length * speed / (2 * np.pi),
    )


def _stretch(variant: Rotary, head_dim: int, inv_freq: np.ndarray) -> np.ndarray:
    """Return how many times slower each pair is than in the geometric series of its base."""
    stretch = np.full(len(inv_freq), np.nan)
    base = getattr(variant, "base", None)
    if base is not None:
        series = head_dim if isinstance(variant, PRope) else variant.rotary_dim(head_dim)
        plain = np.resize(geometric_inv_freq(base, series), len(inv_freq))
        np.divide(plain, np.abs(inv_freq), out=stretch, where=inv_freq != 0)
    return stretch


def _bands(variant: Rotary, inv_freq: np.ndarray, stretch: np.ndarray) -> list[str]:
    """Return `Report.bands`."""
    parameters = vars(variant)
    factor = parameters.get("factor", math.inf)
    if "target_context_length" in parameters:
        factor = parameters["target_context_length"] / parameters["original_context_length"]

    is_kept, is_interpolated = stretch < 1 + 1e-9, stretch > factor * (1 - 1e-9)
    conditions = [inv_freq == 0, np.isnan(stretch), is_kept, is_interpolated]
    return np.select(conditions, ["unrotated", "", "kept", "interpolated"], "ramp").tolist()


def _warnings(
    variant: Rotary, head: Head, speed: np.ndarray, first_negative: int | None
) -> list[str]:
    """Return warnings about training with this variant at this length."""
    length, rotary_dim = head.length, variant.rotary_dim(head.dim)
    share = variant.rotary_fraction * head.dim
    slow = np.flatnonzero((speed > 0) & (length * speed < 2 * np.pi))
    num_fast = int(np.count_nonzero(speed > np.pi))
    error = length * speed.max() * 2.0**-24
    warnings = {
        f"rotary_fraction={variant.rotary_fraction:g} of head_dim={head.dim} is {share:g} features,"
        f" not full pairs: {rotary_dim} are rotated": abs(share - rotary_dim) > 1e-6,
        f"{slow.size} of {len(speed)} pairs ({slow.min(initial=len(speed))} to "
        f"{slow.max(initial=0)}) never complete a cycle within {length} tokens: beyond, their "
        "angles did not occur in training": slow.size > 0,
        f"the sum of cosines is negative at distance {first_negative}, within {length} tokens: the "
        "bound of Men et al. (2024) ends there, and models retrieved beyond it (docs/results.md)": (
            first_negative is not None
        ),
        f"more than half a cycle per token, which equals a slower rotation backwards: "
        f"{counted(num_fast, 'pairs')}": num_fast > 0,
        f"precision: position times frequency in float32 is up to {error:.1g} rad off at {length} "
        "tokens; ropewalk's phases are accurate, other programs' may not be": error > 1e-3,
    }
    return [warning for warning, applies in warnings.items() if applies]
