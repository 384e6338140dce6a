"""What `python -m probes` found in members, beside how far they see: the model's own B(m)."""

import dataclasses
import math
import zipfile
from collections.abc import Container, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiment.run import RunDirectory
from reporting import l50
from reporting.looks import FAINT, INK, PAPER
from reporting.members import Member, tasks
from reporting.page import NONE, Table, words
from reporting.style import folded, handle, tag, token_axis
from settings.places import UnreachableError

_TASK = "kv"  # what the probe asks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looked:
    """One run: where its heads have no advantage left at a matching key, the zeros of their B(m).

    Attributes:
      zero_LN, low_LN, high_LN: tokens, with 95% intervals over documents; inf: at no distance
        asked, 0: it has none next door.
      longest: distance asked, tokens.
      period_P, gain_P: of all pairs of all heads, tokens (inf: not rotated), and the amplitude of
        what each adds to a matching key's logit; none where nobody asked for it.
    """

    zero_LN: np.ndarray
    low_LN: np.ndarray
    high_LN: np.ndarray
    longest: int
    period_P: np.ndarray
    gain_P: np.ndarray

    def text(self) -> str:
        """Head by head."""
        return ", ".join(
            f"> {self.longest}" if math.isinf(zero) else f"{zero:.3g}" for zero in self.zero_LN.flat
        )


def looked(member: Member) -> list[Looked]:
    """Every run of a member that was looked into, at a checkpoint the page is about.

    Raises:
      ValueError: if what was written is damaged.
    """
    evaluated = {int(step) for m in member.measurements for step in np.unique(m.rows["step"])}
    found = []
    for run in member.runs:
        steps = {*evaluated, *run.steps()[-1:]}
        zeros = _read(run, "matching_keys", steps)
        if not zeros:
            continue
        use = _read(run, "frequency_use", steps)
        with np.errstate(divide="ignore"):
            period_P = 2 * np.pi / use["inv_freq_LNR"].ravel() if use else np.array([])
        found.append(
            Looked(
                zero_LN=zeros["zero_LN"],
                low_LN=zeros["zero_low_LN"],
                high_LN=zeros["zero_high_LN"],
                longest=int(zeros["distances_M"][-1]),
                period_P=period_P,
                gain_P=use["amplitude_3LNR"][0].ravel() if use else np.array([]),
            )
        )
    return found


_READ = {
    "matching_keys": {"zero_LN": 2, "zero_low_LN": 2, "zero_high_LN": 2, "distances_M": 1},
    "frequency_use": {"inv_freq_LNR": 3, "amplitude_3LNR": 4},
}


def _read(run: RunDirectory, probe: str, steps: Container[int]) -> dict[str, np.ndarray]:
    """What is read of a probe's arrays, of as many axes each; nothing if they are of others."""
    path = run.path / "probes" / f"{probe}.npz"
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if int(arrays["step"]) not in steps:
                return {}
            found = {name: np.asarray(arrays[name], float) for name in _READ[probe]}
        if any(found[name].ndim != axes for name, axes in _READ[probe].items()):
            raise TypeError("arrays of other shapes")
    except UnreachableError:
        raise
    except (KeyError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged; write it again: python -m probes {run.path}"
        ) from error
    return found


def looked_into(members: Sequence[Member]) -> list[Member]:
    """Those that have both their zeros and an effective context on the task they are of."""
    return [member for member in members if _task(member) and looked(member)]


def _task(member: Member) -> str | None:
    names = (name for name in tasks([member]) if name.partition("(")[0] == _TASK)
    return next(names, None)


def figure(members: Sequence[Member]) -> Figure:
    """Zeros of every head beside L50, a quarter and a full period of the slowest pair."""
    drawn = Figure(figsize=(min(10, 3 + 1.1 * len(members)), 4.6), layout="constrained")
    ax = drawn.subplots()
    found = [(member, looked(member)) for member in members]
    top = max(each.longest for _, seeds in found for each in seeds)
    ax.set_yscale("log", base=2)
    ax.set_ylim(0.8, 2.2 * top)
    for x, (member, seeds) in enumerate(found):
        _periods(ax, x, member)
        for each in seeds:
            _heads(ax, x - 0.2, member, each)
            _gains(ax, x + 0.22, member, each)
        task = _task(member)
        assert task  # it was looked into
        l50.mark(ax, x + 0.06, member, member.estimates[task])
    ax.set_xticks(range(len(members)), [folded(m.label, 14) for m in members], fontsize=8)
    ax.set_xlim(-0.6, len(members) - 0.4)
    token_axis(ax.yaxis)
    ax.set_ylabel("tokens (log scale)")
    drawn.legend(
        handles=[
            handle("no advantage left,\none head", marker="o", mfc=PAPER, mec=INK, ls="none"),
            handle("none lost at any\ndistance asked", marker="^", mfc=PAPER, mec=INK, ls="none"),
            handle("L50", marker="o", color=INK, ls="none"),
            handle("what pairs of such\nperiods gain", color=FAINT, lw=5, alpha=0.5),
            handle("full period", color=FAINT, lw=1.4),
            handle("quarter period", color=FAINT, lw=1.4, ls=(0, (2, 1.5))),
        ],
        loc="outside right center",
    )
    return drawn


def _half(found: Looked) -> str:
    """The period in tokens up to which pairs have half of the amplitudes."""
    order = np.argsort(found.period_P)
    before = np.cumsum(found.gain_P[order]) >= found.gain_P.sum() / 2
    period = found.period_P[order][before.argmax()]
    return NONE if math.isinf(period) else f"{period:,.3g}"


def said(members: Sequence[Member]) -> dict[str, str]:
    """What stands under it."""
    found = "; ".join(f"{m.label}: {' / '.join(z.text() for z in looked(m))}" for m in members)
    return words("inside", found=found, task=_task(members[0]))


def _periods(ax: Axes, x: float, member: Member) -> None:
    low, high = ax.get_ylim()
    ends = (member.theory.full_period, "-"), (member.theory.quarter_period, (0, (2, 1.5)))
    for period, style in ends:
        if low < period < high:
            ax.plot([x - 0.4, x + 0.4], [period, period], color=FAINT, lw=1.4, ls=style)


def _heads(ax: Axes, x: float, member: Member, found: Looked) -> None:
    look = {"color": member.look.color, "zorder": 4}
    ends = zip(found.zero_LN.flat, found.low_LN.flat, found.high_LN.flat, strict=True)
    for number, (zero, low, high) in enumerate(ends):
        place = x + 0.05 * (number - (found.zero_LN.size - 1) / 2)
        said = f"{member.label}, head {number}: no advantage left at {zero:.3g} tokens"
        if math.isinf(zero):
            marks = ax.plot(place, 1.4 * found.longest, "^", mfc=PAPER, ms=5, **look)
            said = f"{member.label}, head {number}: an advantage at every distance asked"
        elif zero == 0:  # it matches nothing next door
            continue
        else:
            marks = ax.plot(place, zero, "o", mfc=PAPER, ms=5, **look)
            ax.plot([place, place], [max(low, 0.8), min(high, 2 * found.longest)], lw=1, **look)
        tag(marks, member, said)


def _gains(ax: Axes, x: float, member: Member, found: Looked) -> None:
    """How much of a matching key's gain comes from pairs of each octave of periods."""
    octave_P = np.floor(np.log2(np.minimum(found.period_P, 2 * found.longest)))
    shares = {
        octave: found.gain_P[octave_P == octave].sum() / found.gain_P.sum()
        for octave in np.unique(octave_P)
    }
    for octave, share in shares.items():
        low = 2.0**octave
        width = 0.25 * share / max(shares.values())
        bar = ax.barh(low * 1.06, width, low * 0.9, x, align="edge", color=member.look.color)
        beyond = "longer" if low >= found.longest else f"to {2 * low:.5g}"
        said = f"{share:.0%} of the gain by pairs of periods from {low:.5g} tokens {beyond}"
        bar[0].set_alpha(0.35)
        tag(bar.get_children(), member, f"{member.label}: {said}")


def table(members: Sequence[Member]) -> Table:
    """The figure in numbers."""
    lines = []
    for member in members:
        task = _task(member)
        theory = member.theory
        cells = {"member": member.label}
        cells["L50 [95% CI]"] = str(member.estimates[task]) if task else NONE
        cells["advantage ends, head by head"] = " / ".join(each.text() for each in looked(member))
        if shares := [_half(each) for each in looked(member) if each.gain_P.size]:
            cells["half of the gain by periods up to"] = " / ".join(shares)
        for name, period in (
            ("quarter period", theory.quarter_period),
            ("full period", theory.full_period),
        ):
            cells[name] = NONE if math.isinf(period) else f"{period:,.3g}"
        lines.append((member.index, cells))
    return Table.of(lines, caption=words("inside_table")["caption"])
