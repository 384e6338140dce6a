"""Reports of `python -m model.rotary show`: the frequencies of a variant before training."""

import inspect
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from model import rotary
from model.rotary.base import Rotary, geometric_inv_freq
from model.rotary.p_rope import PRope

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
      first_violation: the first distance m < length at which sum_i cos(m inv_freq_i) < 0, or None.
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
    first_violation: int | None
    warnings: list[str]

    @property
    def wavelength(self) -> np.ndarray:
        """Tokens per cycle; inf for an unrotated pair."""
        with np.errstate(divide="ignore"):
            return 2 * np.pi / self.inv_freq

    @property
    def cycles(self) -> np.ndarray:
        """Cycles completed within `length` tokens."""
        return self.length * self.inv_freq / (2 * np.pi)


def make_report(
    variant: Rotary, head: Head, first_violation: Callable[[np.ndarray, int], int | None]
) -> Report:
    """Report on `variant`; a dynamic one is that of a row of `head.length` tokens.

    Args:
      variant: the variant.
      head: head and context.
      first_violation: `theory.decay.first_violation`, which this folder must not import.

    Raises:
      ValueError: if the variant does not fit the head.
    """
    name = rotary.expression(variant)
    variant = variant.at_length(head.length)
    inv_freq = np.append(variant.inv_freq(head.dim), np.zeros(head.num_unrotated // 2))
    violation = first_violation(inv_freq, head.length)
    stretch = _stretch(variant, head.dim, inv_freq)
    return Report(
        name=name,
        base=getattr(variant, "base", None),
        head_dim=2 * len(inv_freq),
        length=head.length,
        rotary_dim=variant.rotary_dim(head.dim) if inv_freq.any() else 0,
        inv_freq=inv_freq,
        logit_scale=variant.logit_scale,
        bands=_bands(variant, inv_freq, stretch),
        stretch=stretch,
        first_violation=violation,
        warnings=_warnings(variant, head, inv_freq, violation),
    )


def _stretch(variant: Rotary, head_dim: int, inv_freq: np.ndarray) -> np.ndarray:
    """Return how many times slower each pair is than in the geometric series of its base."""
    stretch = np.full(len(inv_freq), np.nan)
    base = getattr(variant, "base", None)
    if base is not None:
        series = head_dim if isinstance(variant, PRope) else variant.rotary_dim(head_dim)
        num_rotated = np.count_nonzero(inv_freq)
        plain = geometric_inv_freq(base, series)[:num_rotated]
        stretch[:num_rotated] = plain / inv_freq[:num_rotated]
    return stretch


def _bands(variant: Rotary, inv_freq: np.ndarray, stretch: np.ndarray) -> list[str]:
    """Return `Report.bands`."""
    parameters = vars(variant)
    factor = parameters.get("factor", math.inf)
    if "target_context_length" in parameters:
        factor = parameters["target_context_length"] / parameters["original_context_length"]

    def band(frequency: float, slower: float) -> str:
        if frequency == 0:
            return "unrotated"
        if math.isnan(slower):
            return ""
        if slower < 1 + 1e-9:
            return "kept"
        return "interpolated" if slower > factor * (1 - 1e-9) else "ramp"

    return [band(*pair) for pair in zip(inv_freq, stretch, strict=True)]


def _warnings(
    variant: Rotary, head: Head, inv_freq: np.ndarray, violation: int | None
) -> list[str]:
    """Return warnings about training with this variant at this length."""
    length, rotary_dim = head.length, variant.rotary_dim(head.dim)
    warnings = []
    share = variant.rotary_fraction * head.dim
    if abs(share - rotary_dim) > 1e-6:
        warnings.append(
            f"rotary_fraction={variant.rotary_fraction:g} of head_dim={head.dim} is {share:g} "
            f"features, not full pairs: {rotary_dim} are rotated"
        )
    slow = np.flatnonzero((inv_freq > 0) & (length * inv_freq < 2 * np.pi))
    if slow.size:
        warnings.append(
            f"{slow.size} of {len(inv_freq)} pairs ({slow[0]} to {slow[-1]}) never complete a cycle"
            f" within {length} tokens: beyond, their angles did not occur in training"
        )
    if violation is not None:
        warnings.append(
            f"the sum of cosines is negative at distance {violation}, within {length} tokens: "
            "theory (Men et al. 2024) expects no retrieval beyond it; use a larger base"
        )
    fast = np.flatnonzero(inv_freq > np.pi)
    if fast.size:
        warnings.append(
            f"{fast.size} pairs rotate more than half a cycle per token, which equals a slower "
            "rotation backwards"
        )
    error = length * inv_freq.max() * 2.0**-24
    if error > 1e-3:
        warnings.append(
            f"precision: position times frequency in float32 is up to {error:.1g} rad off at "
            f"{length} tokens; ropewalk's phases are accurate, other programs' may not be"
        )
    return warnings


def cookbook() -> str:
    """Return the table of docs/rotary.md, from the "Cookbook" of each variant's docstring."""
    heads = ("variant", "frequency of pair i", "source", "when to use", "name in transformers")
    lines = [(*heads, "config line"), ("---",) * 6]
    for name, cls in rotary.variants().items():
        section = inspect.cleandoc(cls.__doc__ or "").partition("Cookbook:\n")[2]
        # Lines with more indentation continue an entry.
        entries = re.sub(r"\n {3,}", " ", section).splitlines()
        lines.append((name, *(entry.partition(": ")[2] for entry in entries)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def as_text(report: Report) -> str:
    """Return the report as a text table."""
    violation = report.first_violation
    lines = [
        report.name,
        f"  head_dim {report.head_dim}, of which {report.rotary_dim} are rotated; {report.length} "
        f"tokens; logit scale {report.logit_scale:g}; first negative sum of cosines: "
        + (f"none below {report.length}" if violation is None else f"distance {violation}"),
        "",
        "  pair    inv_freq   wavelength      cycles  slower by",
    ]
    rows = zip(
        report.inv_freq, report.wavelength, report.cycles, report.stretch, report.bands, strict=True
    )
    for pair, (frequency, wavelength, cycles, stretch, band) in enumerate(rows):
        slower = "" if math.isnan(stretch) else f"{stretch:.4g}"
        numbers = f"{frequency:10.4g}  {wavelength:11.5g}  {cycles:10.4g}"
        lines.append(f"  {pair:4d}  {numbers}  {slower:>9}  {band}".rstrip())
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in report.warnings)])


def as_json(report: Report) -> dict:
    """Return the report as JSON values, with stable keys; infinite numbers become null."""

    def to_json(values: np.ndarray) -> list[float | None]:
        return [float(value) if math.isfinite(value) else None for value in values]

    plain = report._asdict()
    del plain["base"]  # part of the name
    plain["first_negative"] = plain.pop("first_violation")
    arrays = {"inv_freq": report.inv_freq, "stretch": report.stretch}
    arrays |= {"wavelength": report.wavelength, "turns": report.cycles}
    return plain | {name: to_json(values) for name, values in arrays.items()}


def plot(reports: list[Report]) -> "Figure":
    """Plot wavelength against pair, a panel per variant, with the others in gray."""
    import matplotlib as mpl

    from utils import figures

    with mpl.rc_context(figures.STYLE):
        figure, axes = figures.grid(len(reports), height=2.3, sharex=True, sharey=True)
        lengths = sorted({report.length for report in reports})
        highest = max(max(report.wavelength[report.inv_freq > 0], default=1) for report in reports)
        top = 3 * max(highest, *lengths)
        looks = figures.make_looks([report.base for report in reports], [1] * len(reports))
        for (ax,), report, look in zip(axes, reports, looks, strict=True):
            for other in (*reports, report):
                # The pair as a share of the head, so that heads of different sizes compare.
                depth = np.arange(len(other.inv_freq)) / len(other.inv_freq)
                is_rotated = other.inv_freq > 0
                style = {"color": figures.GRID, "lw": 1, "zorder": 1}
                if other is report:
                    style = {"color": look.color, "lw": 2}
                    ax.plot(depth[~is_rotated], [top] * (~is_rotated).sum(), "^", ms=4, **style)
                ax.plot(depth[is_rotated], other.wavelength[is_rotated], **style)
            for length in lengths:
                ax.axhline(length, **figures.REFERENCE)
            figures.power_axis(ax.yaxis)
            ax.set_title(figures.folded(report.name), fontsize=7.5)
        label = "pair, as a share of the head (fastest at 0)"
        figures.label_x(figure, axes, label)
        figure.supylabel("wavelength (tokens per cycle, log scale)")
        names = ", ".join(f"{length:,}" for length in lengths)
        handles = [figures.handle(f"context of {names} tokens", **figures.REFERENCE)]
        if len(reports) > 1:
            handles.append(figures.handle("the other variants", color=figures.GRID, lw=2))
        if any((report.inv_freq == 0).any() for report in reports):
            handles.append(figures.mark_handle("unrotated pair", "^", ms=5))
        figures.add_legend(figure, handles)
        return figure
