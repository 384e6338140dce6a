"""Figures of held-out text: perplexity beside retrieval, the first loss, and Su's table."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

import evals
from evals import rows as rows_lib
from evals.estimate.summaries import MeanWithError
from evals.tasks import step1
from evals.tasks.repeated import COLUMNS, Repeated, su_table
from evals.tasks.step1 import Step1
from model import rotary as rotary_lib
from model.rotary.rope import Rope
from reporting.members import PERPLEXITY, TRAINED, Measurement, Member, learned, tasks
from reporting.style import FAINT, INK, grid, hint, looks, marked, member_legend, tag


def superficial_lengths(members: Sequence[Member]) -> list[int]:
    """Lengths at which two bases or more have both a perplexity and a retrieval task."""
    lengths = sorted({length for member in members for _, length in member.own})
    return [length for length in lengths if len(_both(members, length)) > 1]


def _both(members: Sequence[Member], length: int) -> list[Member]:
    return [
        member
        for member in members
        if member.base is not None
        and (PERPLEXITY, length) in member.own
        and any((task, length) in member.own for task in tasks(members))
    ]


def superficial(members: Sequence[Member]) -> Figure:
    """Perplexity over the best member's (above) and retrieval (below) against base, by length."""
    lengths = superficial_lengths(members)
    figure = Figure(figsize=(min(10, 3 + 3.2 * len(lengths)), 5.4), layout="constrained")
    above, below = figure.subplots(2, len(lengths), sharex=True, sharey="row", squeeze=False)
    names = [task for task in tasks(members) if learned(members, task)] or tasks(members)
    marks = dict(zip(names, "os^DvPX*<>" * len(names), strict=False))
    look = looks(members)
    for top, bottom, length in zip(above, below, lengths, strict=True):
        shown = _both(members, length)
        best = min(member.own[PERPLEXITY, length].value for member in shown)
        for trained in sorted({member.trained_length for member in shown}):
            alike = [member for member in shown if member.trained_length == trained]
            ratios = [np.exp(member.own[PERPLEXITY, length].value - best) for member in alike]
            top.plot([member.base for member in alike], ratios, color=FAINT, lw=1.1, zorder=2)
            for member, ratio in zip(alike, ratios, strict=True):
                dot = top.plot(member.base, ratio, "o", color=look[member.index].color, ms=6)
                perplexity = np.exp(member.own[PERPLEXITY, length].value)
                text = f"{member.label}: perplexity {perplexity:.2f}, {ratio:.2f} times the best"
                hint(dot, text, member)
            for task in names:
                asked = [member for member in alike if (task, length) in member.own]
                values = [member.own[task, length].value for member in asked]
                bases = [member.base for member in asked]
                bottom.plot(bases, values, color=FAINT, lw=1.1, zorder=2)
                for member, value in zip(asked, values, strict=True):
                    color = look[member.index].color
                    dot = bottom.plot(member.base, value, marks[task], color=color, ms=6)
                    hint(dot, f"{member.label}: {task} {value:.2f}", member)
        bases = sorted({member.base or 0.0 for member in shown})
        top.set_title(f"context of {length:,}")
        for ax in (top, bottom):
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(bases))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FixedFormatter([f"{base:,.5g}" for base in bases]))
        bottom.set_xlabel("RoPE base (log scale)")
    above[0].set_ylabel("perplexity / best")
    # At least up to twice the best, so that a difference of a few per cent looks like one.
    above[0].set_ylim(0.9, max(2.0, 1.1 * above[0].get_ylim()[1]))
    below[0].set_ylabel("accuracy, mean\nover distances")
    below[0].set_ylim(-0.03, 1.05)
    handles = [
        Line2D([], [], marker=marks[task], color=INK, ls="none", ms=6, label=task) for task in names
    ]
    figure.legend(handles=handles, loc="outside right center")
    return figure


def first_losses(member: Member) -> dict[int, dict[str, MeanWithError]]:
    """Nats a token more than under the trained schedule, by length and schedule (task `step1`).

    Paired by token within each seed; the mean over seeds, with the error of that mean.
    """
    found: dict[int, dict[str, MeanWithError]] = {}
    for (task, length), own in member.own.items():
        if isinstance(evals.parse(task), Step1):
            others = [m for m in member.measurements if (m.task, m.length) == (task, length)]
            found[length] = {m.schedule: _difference(m, own) for m in others}
    return found


def _difference(measured: Measurement, own: Measurement) -> MeanWithError:
    pairs = []
    for seed in np.unique(own.rows["seed"]).tolist():
        of_seed = [rows_lib.select(each.rows, seed=seed) for each in (measured, own)]
        # A scan of fewer rows may have gone before.
        both = np.intersect1d(of_seed[0]["document"], of_seed[1]["document"])
        of_seed = [
            {name: column[np.isin(each["document"], both)] for name, column in each.items()}
            for each in of_seed
        ]
        if len(both):
            pairs.append(step1.compare(*of_seed))
    error = np.sqrt(sum(pair.standard_error**2 for pair in pairs)) / max(len(pairs), 1)
    mean = np.mean([pair.mean for pair in pairs]) if pairs else np.nan
    return MeanWithError(float(mean), float(error), sum(pair.num_units for pair in pairs))


def step1_lengths(members: Sequence[Member]) -> list[int]:
    """Lengths at which a member has the first loss of a schedule besides its own."""
    scans = [scan for member in members for scan in first_losses(member).items()]
    return sorted({length for length, schedules in scans if len(schedules) > 1})


def step1_scan(members: Sequence[Member]) -> Figure:
    """A panel a length: first loss against the candidate base, a curve a member."""
    lengths = step1_lengths(members)
    figure, panels = grid(len(lengths), height=4.2, columns=2, sharey=True)
    look = looks(members)
    for ax, length in zip(panels, lengths, strict=True):
        places: dict[float, str] = {}
        for member in members:
            points = []
            for schedule, change in first_losses(member).get(length, {}).items():
                base = _candidate(schedule, member)
                if base is not None:  # other schedules are in results.csv
                    points.append((base, change))
                    places[base] = f"{base:,.5g}" if base < 1e5 else f"{base:.0e}"
            _scan(ax, member, sorted(points), look[member.index])
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=0.01)
        marked(ax.xaxis, places)
        ax.axhline(0, color=FAINT, lw=1, ls=(0, (1, 2)), zorder=1)
        ax.set_title(f"context of {length:,}")
    figure.supxlabel("candidate base (log scale)", fontsize=10)
    panels[0].set_ylabel("first loss above that of\nthe trained schedule (nats/token)")
    own = Line2D([], [], marker="D", mfc="white", color=INK, ls="none", label="trained schedule")
    scanned = [member for member in members if any(first_losses(member).values())]
    member_legend(figure, scanned, [own], look)
    return figure


def _scan(ax, member: Member, points: list[tuple[float, MeanWithError]], style) -> None:
    if not points:
        return
    bases, changes = zip(*points, strict=True)
    mean = [each.mean for each in changes]
    error = [1.96 * each.standard_error for each in changes]
    bars = ax.errorbar(
        bases, mean, error, color=style.color, ls=style.linestyle, lw=1.5, marker="o", ms=4
    )
    tag(bars.get_children(), member)
    if (base := _candidate(TRAINED, member)) is not None:
        mark = ax.plot(base, 0, "D", ms=7, mfc="white", mec=style.color, mew=1.6, zorder=5)
        hint(mark, f"{member.label}: the schedule it was trained with", member)


def _candidate(schedule: str, member: Member) -> float | None:
    """The base of plain RoPE that was evaluated with; None for another schedule."""
    if schedule == TRAINED:
        trained = member.config.model.rotary
        return trained.base if isinstance(trained, Rope) else None
    given = rotary_lib.inherited(member.config.model.rotary, member.trained_length)
    rotary = rotary_lib.parse_pattern(schedule, given)
    return rotary.base if isinstance(rotary, Rope) else None


SU_COLUMNS = ("trained", *COLUMNS.values())


def su_tables(
    members: Sequence[Member],
) -> dict[int, list[tuple[Member, str, dict[str, MeanWithError]]]]:
    """Su's table at every length beyond training: member, schedule, and its columns."""
    found: dict[int, list[tuple[Member, str, dict[str, MeanWithError]]]] = {}
    for member in members:
        asked = [m for m in member.measurements if isinstance(evals.parse(m.task), Repeated)]
        if not asked:
            continue
        rows = rows_lib.concatenate([measured.rows for measured in asked])
        names = {measured.rotary: measured.schedule for measured in asked}
        for length in sorted({m.length for m in asked if m.length > member.trained_length}):
            for rotary, columns in su_table(rows, length).items():
                found.setdefault(length, []).append((member, names[rotary], columns))
    return found
