"""Figure and table of the zeros of each head's empirical B(m), written by `python -m probes`."""

import math
from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiment.run import RunDirectory
from reporting import l50
from reporting.members import Member, tasks
from reporting.page import NONE, Table, format_caption, format_captions
from utils.errors import UnreachableError
from utils.figures import (
    DASHED,
    FAINT,
    add_legend,
    folded,
    handle,
    mark_handle,
    new_figure,
    tag,
    token_axis,
)
from utils.limits import read_arrays

_TASK = "kv"  # task of the probe


class Zeros(NamedTuple):
    """Zeros of the empirical B(m) of one run's heads: beyond them, a matching key has no advantage.

    Attributes:
      zero_LN, low_LN, high_LN: tokens, with 95% intervals over documents; inf: beyond the longest
        distance tested, 0: no advantage at distance 1.
      longest: longest distance tested, tokens.
      period_P, gain_P: periods of all pairs of all heads, tokens (inf: not rotated), and the
        amplitude that each adds to a matching key's logit; empty without the probe frequency_use.
    """

    zero_LN: np.ndarray
    low_LN: np.ndarray
    high_LN: np.ndarray
    longest: int
    period_P: np.ndarray
    gain_P: np.ndarray

    def text(self) -> str:
        """Return the zeros of all heads."""
        return ", ".join(
            f"> {self.longest}" if math.isinf(zero) else f"{zero:.3g}" for zero in self.zero_LN.flat
        )


def read_zeros(member: Member) -> list[Zeros]:
    """Return the zeros of each probed run, at checkpoints that the page shows.

    Raises:
      ValueError: if a probe's file is damaged.
    """
    evaluated = {int(step) for m in member.measurements for step in np.unique(m.rows["step"])}
    results = []
    for run in member.runs:
        steps = {*evaluated, *run.steps()[-1:]}
        if zeros := _read(run, "matching_keys", steps, _ZEROS):
            zero_LN, low_LN, high_LN, distances_M = zeros
            use = _read(run, "frequency_use", steps, ("inv_freq_LNR", "amplitude_3LNR"))
            inv_freq_LNR, amplitude_3LNR = use or (np.array([]), [np.array([])])
            with np.errstate(divide="ignore"):
                period_P = 2 * np.pi / inv_freq_LNR.ravel()
            ends = zero_LN, low_LN, high_LN, int(distances_M[-1])
            results.append(Zeros(*ends, period_P, amplitude_3LNR[0].ravel()))
    return results


_ZEROS = "zero_LN", "zero_low_LN", "zero_high_LN", "distances_M"


def _read(
    run: RunDirectory, probe: str, steps: Container[int], names: Sequence[str]
) -> list[np.ndarray]:
    """Return some of a probe's arrays; nothing if there are none of these steps."""
    path = run.path / "probes" / f"{probe}.npz"
    if not path.exists():
        return []
    try:
        step, *arrays = read_arrays(path, ("step", *names))
        return [np.asarray(array, float) for array in arrays] if int(step) in steps else []
    except UnreachableError:
        raise
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is damaged; write it again: python -m probes {run.path}"
        ) from error


def probed(members: Sequence[Member]) -> list[Member]:
    """Return the members with both zeros and an effective context on the probe's task."""
    return [member for member in members if _task(member) and read_zeros(member)]


def _task(member: Member) -> str | None:
    names = (name for name in tasks([member]) if name.partition("(")[0] == _TASK)
    return next(names, None)


def draw_zeros(members: Sequence[Member]) -> Figure:
    """Draw the zeros of every head beside L50 and the periods of the slowest pair."""
    figure = new_figure(3 + 1.1 * len(members), 4.6)
    ax = figure.subplots()
    zeros = {member: read_zeros(member) for member in members}
    top = max(seed.longest for seeds in zeros.values() for seed in seeds)
    token_axis(ax.yaxis)
    ax.set_ylim(0.8, 2.2 * top)
    for x, member in enumerate(members):
        _draw_periods(ax, x, member)
        for seed in zeros[member]:
            _draw_heads(ax, x - 0.2, member, seed)
            _draw_gains(ax, x + 0.22, member, seed)
        task = _task(member)
        assert task  # holds for `probed` members
        l50.draw_l50(ax, x + 0.06, member, member.estimates[task])
    ax.set_xticks(range(len(members)), [folded(m.label, 14) for m in members], fontsize=8)
    ax.set_xlim(-0.6, len(members) - 0.4)
    figure.supylabel("tokens (log scale)")
    handles = [
        mark_handle("zero of B(m),\none head", "P"),
        mark_handle("zero beyond the longest\ndistance tested", "^"),
        mark_handle("L50 with its\n95% interval", "o"),
        handle("share of the gain by\noctave of periods", color=FAINT, lw=5, alpha=0.5),
        handle("full period of the\nslowest pair", color=FAINT, lw=1.4),
        handle("its quarter", color=FAINT, lw=1.4, ls=DASHED),
    ]
    add_legend(figure, handles)
    return figure


def _median_period(zeros: Zeros) -> str:
    """Return the period in tokens up to which pairs have half of the total amplitude."""
    order = np.argsort(zeros.period_P)
    before = np.cumsum(zeros.gain_P[order]) >= zeros.gain_P.sum() / 2
    return _format_period(float(zeros.period_P[order][before.argmax()]))


def _format_period(period: float) -> str:
    return NONE if math.isinf(period) else f"{period:,.3g}"


def zeros_captions(members: Sequence[Member]) -> dict[str, str]:
    """Return the caption and alternative text of the figure."""
    zeros = "; ".join(f"{m.label}: {' / '.join(z.text() for z in read_zeros(m))}" for m in members)
    return format_captions("inside", zeros=zeros, task=_task(members[0]))


def _draw_periods(ax: Axes, x: float, member: Member) -> None:
    low, high = ax.get_ylim()
    for period, style in (member.theory.full_period, "-"), (member.theory.quarter_period, DASHED):
        if low < period < high:
            ax.plot([x - 0.4, x + 0.4], [period, period], color=FAINT, lw=1.4, ls=style)


def _draw_heads(ax: Axes, x: float, member: Member, zeros: Zeros) -> None:
    look = {"color": member.look.color, "zorder": 4}
    ends = zip(zeros.zero_LN.flat, zeros.low_LN.flat, zeros.high_LN.flat, strict=True)
    for number, (zero, low, high) in enumerate(ends):
        head_x = x + 0.05 * (number - (zeros.zero_LN.size - 1) / 2)
        text = f"zero of B(m) at {zero:.3g} tokens"
        if math.isinf(zero):
            marks = ax.plot(head_x, 1.4 * zeros.longest, "^", ms=5, **look)
            text = "zero of B(m) beyond the longest distance tested"
        elif zero == 0:  # no advantage at distance 1
            continue
        else:
            marks = ax.plot(head_x, zero, "P", ms=5, **look)
            interval = [max(low, 0.8), min(high, 2 * zeros.longest)]
            ax.plot([head_x, head_x], interval, lw=1, **look)
        tag(marks, member, f"{member.label}, head {number}: {text}")


def _draw_gains(ax: Axes, x: float, member: Member, zeros: Zeros) -> None:
    """Draw the share of a matching key's gain that pairs of each octave of periods contribute."""
    octave_P = np.floor(np.log2(np.minimum(zeros.period_P, 2 * zeros.longest)))
    shares = {
        octave: zeros.gain_P[octave_P == octave].sum() / zeros.gain_P.sum()
        for octave in np.unique(octave_P)
    }
    for octave, share in shares.items():
        low = 2.0**octave
        width = 0.25 * share / max(shares.values())
        bar = ax.barh(low * 1.06, width, low * 0.9, x, align="edge", color=member.look.color)
        high = "or longer" if low >= zeros.longest else f"to {2 * low:.5g}"
        text = f"{share:.0%} of the gain from pairs with periods of {low:.5g} tokens {high}"
        bar[0].set_alpha(0.35)
        tag(bar.get_children(), member, f"{member.label}: {text}")


def zeros_table(members: Sequence[Member]) -> Table:
    """Return the numbers of the figure."""
    lines = []
    for member in members:
        task = _task(member)
        seeds = read_zeros(member)
        cells = {"member": member.label}
        cells["L50 [95% CI]"] = str(member.estimates[task]) if task else NONE
        cells["zero of B(m) of each head"] = " / ".join(seed.text() for seed in seeds)
        if medians := [_median_period(seed) for seed in seeds if seed.gain_P.size]:
            cells["half of the gain: periods up to"] = " / ".join(medians)
        cells["quarter period"] = _format_period(member.theory.quarter_period)
        cells["full period"] = _format_period(member.theory.full_period)
        lines.append((member.index, cells))
    return Table.from_cells(lines, caption=format_caption("inside_table"))
