"""What `python -m probes` found in members, beside how far they see: the model's own B(m)."""

import dataclasses
import math
import zipfile
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiment.run import RunDirectory
from reporting import l50
from reporting.looks import FAINT, INK, PAPER
from reporting.members import Member, tasks
from reporting.page import NONE, Table, words
from reporting.style import folded, handle, tag, token_axis

_TASK = "kv"  # what the probe asks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zeros:
    """Where the heads of one run have no advantage left at a matching key: zeros of their B(m).

    Attributes:
      zero_LN, low_LN, high_LN: tokens, with 95% intervals over documents; inf: at no distance
        asked, 0: it has none next door.
      longest: distance asked, tokens.
    """

    zero_LN: np.ndarray
    low_LN: np.ndarray
    high_LN: np.ndarray
    longest: int

    def text(self) -> str:
        """Head by head."""
        return ", ".join(
            f"> {self.longest}" if math.isinf(zero) else f"{zero:.3g}" for zero in self.zero_LN.flat
        )


def zeros(member: Member) -> list[Zeros]:
    """Of every run of a member that was looked into, at a checkpoint the page is about.

    Raises:
      ValueError: if what was written is damaged.
    """
    evaluated = {int(step) for m in member.measurements for step in np.unique(m.rows["step"])}
    return [
        found
        for run in member.runs
        for step, found in _read(run)
        if step in {*evaluated, *run.steps()[-1:]}
    ]


def _read(run: RunDirectory) -> list[tuple[int, Zeros]]:
    path = run.path / "probes" / "matching_keys.npz"
    if not path.exists():
        return []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            zero_LN, low_LN, high_LN = (
                np.array(arrays[name], float, ndmin=2)
                for name in ("zero_LN", "zero_low_LN", "zero_high_LN")
            )
            step, longest = int(arrays["step"]), int(arrays["distances_M"][-1])
    except (KeyError, IndexError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged; write it again: python -m probes {run.path}"
        ) from error
    return [(step, Zeros(zero_LN=zero_LN, low_LN=low_LN, high_LN=high_LN, longest=longest))]


def looked_into(members: Sequence[Member]) -> list[Member]:
    """Those that have both their zeros and an effective context on the task they are of."""
    return [member for member in members if _task(member) and zeros(member)]


def _task(member: Member) -> str | None:
    names = (name for name in tasks([member]) if name.partition("(")[0] == _TASK)
    return next(names, None)


def figure(members: Sequence[Member]) -> Figure:
    """Zeros of every head beside L50, a quarter and a full period of the slowest pair."""
    drawn = Figure(figsize=(min(10, 3 + 1.1 * len(members)), 4.6), layout="constrained")
    ax = drawn.subplots()
    found = [(member, zeros(member)) for member in members]
    top = max(each.longest for _, seeds in found for each in seeds)
    ax.set_yscale("log", base=2)
    ax.set_ylim(0.8, 2.2 * top)
    for x, (member, seeds) in enumerate(found):
        _periods(ax, x, member)
        for each in seeds:
            _heads(ax, x - 0.16, member, each)
        task = _task(member)
        assert task  # it was looked into
        l50.mark(ax, x + 0.16, member, member.estimates[task])
    ax.set_xticks(range(len(members)), [folded(m.label, 14) for m in members], fontsize=8)
    ax.set_xlim(-0.6, len(members) - 0.4)
    token_axis(ax.yaxis)
    ax.set_ylabel("tokens (log scale)")
    drawn.legend(
        handles=[
            handle("no advantage left,\none head", marker="o", mfc=PAPER, mec=INK, ls="none"),
            handle("none lost at any\ndistance asked", marker="^", mfc=PAPER, mec=INK, ls="none"),
            handle("L50", marker="o", color=INK, ls="none"),
            handle("full period", color=FAINT, lw=1.4),
            handle("quarter period", color=FAINT, lw=1.4, ls=(0, (2, 1.5))),
        ],
        loc="outside right center",
    )
    return drawn


def said(members: Sequence[Member]) -> dict[str, str]:
    """What stands under it."""
    found = "; ".join(f"{m.label}: {' / '.join(z.text() for z in zeros(m))}" for m in members)
    return words("inside", found=found, task=_task(members[0]))


def _periods(ax: Axes, x: float, member: Member) -> None:
    low, high = ax.get_ylim()
    ends = (member.theory.full_period, "-"), (member.theory.quarter_period, (0, (2, 1.5)))
    for period, style in ends:
        if low < period < high:
            ax.plot([x - 0.4, x + 0.4], [period, period], color=FAINT, lw=1.4, ls=style)


def _heads(ax: Axes, x: float, member: Member, found: Zeros) -> None:
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


def table(members: Sequence[Member]) -> Table:
    """The figure in numbers."""
    lines = []
    for member in members:
        task = _task(member)
        theory = member.theory
        cells = {"member": member.label}
        cells["L50 [95% CI]"] = str(member.estimates[task]) if task else NONE
        cells["advantage ends, head by head"] = " / ".join(each.text() for each in zeros(member))
        for name, period in (
            ("quarter period", theory.quarter_period),
            ("full period", theory.full_period),
        ):
            cells[name] = NONE if math.isinf(period) else f"{period:,.3g}"
        lines.append((member.index, cells))
    return Table.of(lines, caption=words("inside_table")["caption"])
