"""Reports of `python -m model.rotary show`: the frequencies of a variant before training."""

import inspect
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from model import rotary
from model.rotary.base import Rotary, geometric_inv_freq
from model.rotary.p_rope import PRope


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
      inv_freq: float64 `[head_dim // 2]`, radians per token, zeros for unrotated pairs.
      bands: for each pair "kept", "ramp" or "interpolated" relative to the variant's base
        unstretched, "unrotated", or "" if the variant has no base.
      stretch: how many times slower each pair is than at that base; nan if there is none.
      first_violation: the first distance m < length at which sum_i cos(m inv_freq_i) < 0, or None.
    """

    name: str
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
    plain["first_negative"] = plain.pop("first_violation")
    arrays = {"inv_freq": report.inv_freq, "stretch": report.stretch}
    arrays |= {"wavelength": report.wavelength, "turns": report.cycles}
    return plain | {name: to_json(values) for name, values in arrays.items()}


def plot(reports: list[Report], file: str) -> None:
    """Plot wavelength against pair, one line per variant, and a line at each context."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    if len({report.name.partition("(")[0] for report in reports}) == 1:  # one variant, many bases
        colors = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(reports)))
    else:
        colors = mpl.colormaps["tab10" if len(reports) <= 10 else "tab20"](range(len(reports)))
    highest = max(max(report.wavelength[report.inv_freq > 0], default=1) for report in reports)
    top = 3 * max(highest, *(report.length for report in reports))
    # Later lines are thinner, so that covered lines remain visible.
    widths = np.linspace(3.5, 1, len(reports))
    for report, color, width in zip(reports, colors, widths, strict=True):
        # Plot the pair as a share of the head, so that heads of different sizes are comparable.
        depth = np.arange(len(report.inv_freq)) / len(report.inv_freq)
        label = report.name if len(report.name) <= 60 else report.name[:57] + "..."
        label = label.replace("$", r"\$")  # no formula
        rotated = report.inv_freq > 0
        if rotated.any():
            axes.plot(
                depth[rotated], report.wavelength[rotated], ".-", color=color, lw=width, label=label
            )
            label = None
        if not rotated.all():
            unrotated = depth[~rotated]
            height = np.full(len(unrotated), top)
            axes.plot(unrotated, height, "^", color=color, fillstyle="none", ms=4, label=label)
    for length in sorted({report.length for report in reports}):
        axes.axhline(length, color="0.4", lw=1, ls="--")
        axes.annotate(f"context, {length} tokens", (0, length), (0, 3), textcoords="offset points")
    if any((report.inv_freq == 0).any() for report in reports):
        axes.annotate("△ unrotated", (0, top), (0, -12), textcoords="offset points")
    xlabel = "pair, as a share of the head (fastest at 0)"
    axes.set(yscale="log", xlabel=xlabel, ylabel="wavelength (tokens per cycle)")
    axes.spines[["top", "right"]].set_visible(False)
    ncols = 2 if len(reports) > 3 else 1
    figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=ncols)
    figure.savefig(file, dpi=150)
