"""Reports and figures of frequencies: wavelengths, B_m, smallest bases, and capability.

Figures are computed when they are drawn. The commands of `theory` import this module late, because
matplotlib is slow to import.
"""

import inspect
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ropewalk.configs import find_config, load_configs
from ropewalk.experiment import overrides
from ropewalk.model import rotary
from ropewalk.model.rotary.base import Rotary, geometric_inv_freq
from ropewalk.model.rotary.p_rope import PRope
from ropewalk.theory import decay
from ropewalk.theory.capability import capability, required_capability
from ropewalk.utils import figures
from ropewalk.utils.expressions import split_commas
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import counted, nearest
from ropewalk.utils.plugins import run_file

_MAX_POINTS = 20_000  # of a curve


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


# --- wavelengths of a variant --------------------------------------------------------------------


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
      longer: another context; None: there is none.
      new_angles: number of rotated pairs that complete no cycle within `length` tokens, so that
        every longer context has angles which did not occur in training.
      incomplete: number of those that complete none within `longer` tokens either.
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
    longer: int | None
    new_angles: int
    incomplete: int | None


def find(text: str) -> list[tuple[Rotary, Head]]:
    """Return the variants that `text` names, with the head and context of each.

    Args:
      text: an expression, a comma list of expressions, a pattern, or a config (its name, or
        FILE.py), which stands for all members of its sweep.
    """
    is_variant = "(" in text or text.startswith("[") or text in rotary.variants()
    is_file = not is_variant and re.search(r"\.py(:|$)", text)
    if is_variant or (is_file and not hasattr(run_file(Path(text.partition(":")[0])), "configs")):
        entries = [(rotary.parse_pattern(part), Head()) for part in split_commas(text)]
    else:
        is_file = is_file or text.endswith(".toml")
        configs = {text: find_config(text)} if is_file else load_configs()
        if text not in configs:
            names = {*configs, *rotary.variants()}
            raise ValueError(f"unknown config or variant {text!r}; {nearest(text, names)}")
        entries = []
        for member in configs[text].members or ((),):
            config = overrides.apply(configs[text], member)
            dim = config.model.rope_head_dim
            num_unrotated, length = config.model.head_dim - dim, config.data.context_length
            head = Head(dim=dim, num_unrotated=num_unrotated, length=length)
            entries.append((config.model.rotary, head))
    # Without duplicates: members of a sweep may differ in other fields.
    return list(
        dict.fromkeys(
            (variant, head)
            for pattern, head in entries
            for variant in rotary.unique_variants(pattern)
        )
    )


def make_report(variant: Rotary, head: Head, longer: int | None = None) -> Report:
    """Report on `variant`; a dynamic one is that of a row of `head.length` tokens.

    Args:
      variant: of the head.
      head: with the context that the model is trained with.
      longer: another context, tokens.

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
    turns = head.length * speed / (2 * np.pi)
    is_new = (turns > 0) & (turns < 1)
    incomplete = longer and int((is_new & (turns < head.length / longer)).sum())
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
        turns=turns,
        longer=longer,
        new_angles=int(is_new.sum()),
        incomplete=incomplete,
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
        "bound of Men et al. (2024) ends there, and models retrieved beyond it (docs/recall.md)": (
            first_negative is not None
        ),
        f"more than half a cycle per token, which equals a slower rotation backwards: "
        f"{counted(num_fast, 'pairs')}": num_fast > 0,
        f"precision: position times frequency in float32 is up to {error:.1g} rad off at {length} "
        "tokens; ropewalk's phases are accurate, other programs' may not be": error > 1e-3,
    }
    return [warning for warning, applies in warnings.items() if applies]


def as_text(report: Report) -> str:
    """Return the report as a text table."""
    first, length = report.first_negative, report.length
    lines = [
        report.name,
        f"  head_dim {report.head_dim}, of which {report.rotary_dim} are rotated; {length} tokens; "
        f"logit scale {report.logit_scale:g}; first negative sum of cosines: "
        + (f"none below {length}" if first is None else f"distance {first}"),
        "",
        "  pair    inv_freq   wavelength      cycles  slower by",
    ]
    columns = report.inv_freq, report.wavelength, report.turns, report.stretch, report.bands
    for pair, row in enumerate(zip(*columns, strict=True)):
        line = "  {:4d}  {:10.4g}  {:11.5g}  {:10.4g}  {:>9.4g}  {}".format(pair, *row)
        lines.append(line.replace("nan", "   ").rstrip())
    if report.longer:
        lines.append(
            f"  from {length:,} to {report.longer:,} tokens: {report.new_angles} of "
            f"{len(report.inv_freq)} pairs meet new angles, and {report.incomplete} of them "
            f"complete no cycle within {report.longer:,} tokens either"
        )
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in report.warnings)])


# --- figures -------------------------------------------------------------------------------------


@matplotlib.rc_context(figures.STYLE)
def draw_wavelengths(reports: Sequence[Report]) -> Figure:
    """Draw wavelength against pair, a panel per variant, with the others in gray."""
    figure, axes = figures.grid(len(reports), height=2.3, sharex=True, sharey=True)
    lengths = sorted({report.length for report in reports})
    highest = max(max(report.wavelength[report.inv_freq != 0], default=1) for report in reports)
    top = 3 * max(highest, *lengths)
    for (ax,), report in zip(axes, reports, strict=True):
        for other in (*reports, report):
            # The pair as a share of the head, so that heads of different sizes compare.
            depth = np.arange(len(other.inv_freq)) / len(other.inv_freq)
            is_rotated = other.inv_freq != 0
            style = {"color": figures.GRID, "lw": 1, "zorder": 1}
            if other is report:
                style = {"color": figures.stroke_of(report.base).color, "lw": 2}
                ax.plot(depth[~is_rotated], [top] * (~is_rotated).sum(), "^", ms=4, **style)
            ax.plot(depth[is_rotated], other.wavelength[is_rotated], **style)
        for length in lengths:
            ax.axhline(length, **figures.REFERENCE)
        figures.power_axis(ax.yaxis)
        ax.set_title(figures.folded(report.name), fontsize=8)
    figure.supxlabel("pair, as a share of the head (fastest at 0)")
    figure.supylabel("wavelength (tokens per cycle, log scale)")
    slowest = [max(report.wavelength[report.inv_freq != 0], default=0) for report in reports]
    ends = " to ".join(f"{value:,.0f}" for value in dict.fromkeys([min(slowest), max(slowest)]))
    figures.set_message(figure, f"The slowest pair turns once in {ends} tokens")
    names = ", ".join(f"{length:,}" for length in lengths)
    handles = [figures.handle(f"context of {names} tokens", **figures.REFERENCE)]
    if len(reports) > 1:
        handles.append(figures.handle("the other variants", color=figures.GRID, lw=2))
    if any((report.inv_freq == 0).any() for report in reports):
        handles.append(figures.mark_handle("unrotated pair", "^", ms=5))
    figures.add_legend(figure, handles)
    return figure


@matplotlib.rc_context(figures.STYLE)
def draw_curves(
    curves: Mapping[str, np.ndarray], length: int, bound: str = "b_m", trained: int = 0
) -> Figure:
    """Draw a panel per curve for distances 0 <= m < length.

    Args:
      curves: names and inverse frequencies, float64 `[R]`, radians per token.
      length: tokens.
      bound: "b_m": B_m, with its first negative distance; "attention": `decay.attention_bound`,
        relative to distance 0; "slowest": cosine of the slowest rotated pair.
      trained: tokens; a line is drawn there.
    """
    figure = figures.new_figure(9.2, 0.8 + 1.7 * len(curves))
    axes = figure.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    distances = np.unique(np.linspace(0, length - 1, min(length, _MAX_POINTS)).astype(np.int64))
    for ax, (title, inv_freq) in zip(axes, curves.items(), strict=True):
        if bound == "attention":
            values = decay.attention_bound(inv_freq, distances)
            values = values / values[0]
            ax.set_ylim(0, 1)
        elif bound == "slowest":
            values = np.cos(2 * np.pi * distances / decay.full_period(inv_freq))
        else:
            values = decay.cosine_sum(inv_freq, distances)
            first = decay.first_violation(inv_freq, length)
            title += ": no distance with Bₘ < 0" if first is None else ""
            ax.axhline(0, color=figures.INK, lw=0.8)
            if first is not None:
                ax.axvline(first, color=figures.INK, lw=1, ls=figures.DASHED)
                title += f": first Bₘ < 0 at {first:,} tokens"
        if trained:
            ax.axvline(trained, **figures.REFERENCE)
        color = figures.stroke_of(_base(inv_freq)).color
        ax.plot(distances, values, color=color, lw=0.8 if bound == "b_m" else 1.5)
        figures.set_title(ax, title)
    axes[-1].set(xlabel="distance m (tokens)", xlim=(0, length))
    axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    labels = {"attention": "bound / bound at 0", "slowest": "cos(m ω) of the slowest pair"}
    figure.supylabel(labels.get(bound, "Bₘ = Σ cos(m ωᵢ)"))
    message = "How fast the bound of a logit falls with distance"
    if bound == "slowest":
        shares = [trained / decay.full_period(inv_freq) for inv_freq in curves.values()]
        ends = " to ".join(dict.fromkeys(f"{share:.2g}" for share in (min(shares), max(shares))))
        message = f"The slowest pair completes {ends} turns within {trained:,} tokens"
    if bound == "b_m":
        known = {
            base: decay.first_violation(inv_freq, length) or math.inf
            for inv_freq in curves.values()
            if (base := _base(inv_freq))
        }
        firsts = [known[base] for base in sorted(known)]
        is_growing = len(firsts) > 1 and firsts == sorted(firsts) and firsts[0] < firsts[-1]
        message = "The distance at which Bₘ first turns negative"
        message += " is shorter with a smaller base" * is_growing
    figures.set_message(figure, message)
    return figure


def _base(inv_freq: np.ndarray) -> float | None:
    """Return the base if the pairs that rotate are a geometric series, else None."""
    rotated = inv_freq[inv_freq != 0]
    ratios = rotated[:-1] / rotated[1:]
    if len(ratios) and ratios[0] > 1 and np.allclose(ratios, ratios[0], rtol=1e-9):
        return float(f"{ratios[0] ** len(rotated):.6g}")
    return None


@matplotlib.rc_context(figures.STYLE)
def draw_smallest_bases(rows: Sequence[Mapping]) -> Figure:
    """Draw the smallest base by length: certified, published, asymptotic.

    Args:
      rows: rows of `ropewalk theory table --json`.
    """
    figure = figures.new_figure(9.2, 4.6)
    ax = figure.subplots()
    lengths = [row["length"] for row in rows]
    certified: dict[str, Any] = {"marker": "o", "color": figures.INK, "lw": 1.4, "ms": 5}
    many_pairs: dict[str, Any] = {"color": figures.FAINT, "lw": 1.4, "ls": figures.DASHED}
    curves = {
        "certified": ("high", certified),
        "infinitely many pairs: L / x₀ (docs/theory.md)": ("asymptotic", many_pairs),
    }
    for key, style in curves.values():
        ax.plot(lengths, [row[key] for row in rows], **style)
    handles = []
    published = ("men_2024", "D", 9, "Men et al. 2024, Table 2"), ("su_2024", "x", 8, "Su 2024")
    for key, marker, size, label in published:
        points = [(row["length"], row[key]) for row in rows if row[key] is not None]
        if points:
            ax.plot(*zip(*points, strict=True), marker, color=figures.FAINT, ms=size, mew=1.8)
            handles.append(
                figures.mark_handle(label, marker, color=figures.FAINT, ms=size, mew=1.8)
            )
    figures.token_axis(ax.xaxis)
    figures.power_axis(ax.yaxis)
    ax.set_xlabel("context length L (tokens, log scale)")
    ax.set_ylabel("smallest base with Bₘ ≥ 0\nfor all m < L (log scale)")
    last, text = lengths[-1], figures.format_value(float(f"{rows[-1]['high']:.3g}"))
    figures.set_message(figure, f"A context of {last:,} tokens needs a base of {text} or more")
    figures.label_ends(
        ax,
        [
            figures.End(last, rows[-1][key], name, style["color"])
            for name, (key, style) in curves.items()
        ],
    )
    figures.add_legend(figure, handles, below=True)
    return figure


@matplotlib.rc_context(figures.STYLE)
def draw_capabilities(
    inv_freq_NR: np.ndarray, length: int, num_others: int | None = None
) -> Figure:
    """Draw D_H against the length, for the first 1, 2, 4, ... heads and for all of them.

    Args:
      inv_freq_NR: float64, radians per token, of each head.
      length: tokens, at least 2.
      num_others: number of keys that do not match; the D_H needed for accuracy .5 is drawn.
    """
    figure = figures.new_figure(9.2, 4.6)
    ax = figure.subplots()
    num_points = round(2 * math.log2(length)) + 1  # one per half octave
    lengths = np.unique(np.geomspace(1, length, num_points).round().astype(int))
    counts = {2**power for power in range(len(inv_freq_NR).bit_length())} | {len(inv_freq_NR)}
    ends = []
    for count in sorted(counts):
        stroke = figures.stroke_of(_base(inv_freq_NR[0]), count)
        values = [capability(inv_freq_NR[:count], m).value for m in lengths.tolist()]
        # Heads attain at least this value at every shorter length.
        values = np.maximum.accumulate(values[::-1])[::-1]
        ax.plot(lengths, values, marker="o", ms=4, lw=1.7, **stroke.line)
        label = counted(count, "heads") + " (at least)" * (count > 1)
        ends.append(figures.End(lengths[-1], values[-1], label, stroke.color))
    message = f"{ends[-1].name}: D_H is {ends[-1].y:.3g} at {lengths[-1]:,} tokens"
    if num_others is not None:
        needed = required_capability(num_others)
        ax.axhline(needed, **figures.REFERENCE)
        label = f"needed for accuracy .5 among {num_others} other keys"
        ends.append(figures.End(lengths[-1], needed, label, figures.FAINT))
        message += f"; accuracy .5 among {num_others} other keys needs {needed:.3g}"
    figures.token_axis(ax.xaxis)
    ax.set_xlabel("length M (tokens, log scale)")
    ax.set_ylabel("capability D_H\n(standard deviations)")
    ax.set_ylim(bottom=0)
    figures.set_message(figure, message)
    figures.label_ends(ax, ends)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with matplotlib.rc_context(figures.STYLE):
        figure.savefig(content, format=path.suffix[1:])
    write_atomically(path, content.getvalue())
