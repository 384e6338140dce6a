"""The figures of curves, one a member: by distance, length, position, context, tokens seen."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

import evals
from evals import rows as rows_lib
from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from evals.rows import Rows
from evals.tasks import fixed_target, lagcopy
from evals.tasks.fixed_target import FixedTarget
from evals.tasks.lagcopy import Lagcopy
from evals.tasks.step1 import Step1
from reporting.members import Member, at_several_lengths, tasks
from reporting.style import (
    FAINT,
    INK,
    Look,
    folded,
    grid,
    hint,
    looks,
    marked_lengths,
    member_legend,
    tag,
    token_axis,
)

MIN_TRIALS = 10  # fewer questions than this at a distance are not drawn
_SIZE = (9.2, 4.3)
_DOTS = (0, (1, 2))


def accuracy_by_distance(members: Sequence[Member]) -> Figure:
    """A panel a task and trained length: exact answers against distance, with 95% intervals."""
    lengths = sorted({member.trained_length for member in members})
    found = accuracy_panels(members)
    figure, panels = grid(len(found), height=3.8, sharey=True)
    look = looks(members)
    for ax, ((task, length), shown) in zip(panels, found.items(), strict=True):
        estimates = [member.estimates[task] for member in shown]
        for chance in {estimate.chance for estimate in estimates}:
            ax.axhline(chance, color=FAINT, linewidth=1, linestyle=_DOTS, zorder=1)
        for member, estimate in zip(shown, estimates, strict=True):
            _accuracy(ax, member, estimate, look[member.index])
        ax.set_xscale("log", base=2)
        shortest = min(max(estimate.shortest, 1) for estimate in estimates)
        ax.set_xlim(shortest / 1.2, 1.2 * max(estimate.longest for estimate in estimates))
        token_axis(ax.xaxis, num_ticks=8)
        ax.set_ylim(-0.03, 1.03)
        ax.set_title(folded(task) + (f"\ntrained on {length:,}" if len(lengths) > 1 else ""))
    figure.supxlabel("distance to the answer (tokens, log scale)", fontsize=10)
    figure.supylabel("accuracy (exact match)", fontsize=10)
    half = Line2D([], [], marker="D", mfc="white", color=INK, ls="none", label="effective context")
    chance = Line2D([], [], color=FAINT, ls=_DOTS, lw=1, label="chance")
    member_legend(figure, members, [half, chance])
    return figure


def accuracy_panels(members: Sequence[Member]) -> dict[tuple[str, int], list[Member]]:
    """By task and trained length, the members that were asked enough to be drawn."""
    found: dict[tuple[str, int], list[Member]] = {}
    for task in tasks(members):
        for member in sorted(members, key=lambda member: member.trained_length):
            estimate = member.estimates.get(task)
            if estimate and any(each.trials >= MIN_TRIALS for each in estimate.bins):
                found.setdefault((task, member.trained_length), []).append(member)
    return found


def _accuracy(ax: Axes, member: Member, estimate: Estimate, look: Look) -> None:
    bins = [each for each in estimate.bins if each.trials >= MIN_TRIALS]
    distance = [each.distance for each in bins]
    low, high = ([getattr(each, end) for each in bins] for end in ("ci_low", "ci_high"))
    accuracy = [each.accuracy for each in bins]
    band = ax.fill_between(distance, low, high, color=look.color, alpha=0.14, linewidth=0)
    line = ax.plot(
        distance, accuracy, color=look.color, ls=look.linestyle, lw=1.7, marker="o", ms=3.2
    )
    tag([band, *line], member)
    if estimate.verdict == MEASURED:
        half = estimate.chance + 0.5 * (estimate.ceiling - estimate.chance)
        mark = ax.plot(
            estimate.l50, half, marker="D", ms=6.5, mfc="white", mec=look.color, mew=1.6, zorder=5
        )
        tag(mark, member)


def loss(members: Sequence[Member]) -> Figure:
    """Training loss against tokens seen, one curve a seed."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    ax = figure.subplots()
    look = looks(members)
    for member in members:
        for tokens, nats in member.losses:
            style = look[member.index]
            tag(ax.plot(tokens, nats, lw=1.6, color=style.color, ls=style.linestyle), member)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(FuncFormatter(compact))
    ax.set_xlabel("tokens seen")
    ax.set_ylabel("training loss (nats/token)")
    ax.set_title("Training loss")
    member_legend(figure, members)
    return figure


def compact(value: float, _=None) -> str:
    """1500000 as 1.5M."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


def perplexity_by_position(members: Sequence[Member]) -> Figure:
    """Held-out text against the place in the document, a panel a length, with 95% intervals."""
    lengths = sorted({length for member in members for length in member.perplexity})
    figure, panels = grid(len(lengths), height=3.9, sharey=True)
    look = looks(members)
    shown = [member for member in members if member.perplexity]
    for ax, length in zip(panels, lengths, strict=True):
        here = [member for member in shown if length in member.perplexity]
        for member in here:
            curve, style = member.perplexity[length], look[member.index]
            positions = np.maximum(curve.positions, 1)
            low, high = (np.exp(curve.nll + sign * 1.96 * curve.error) for sign in (-1, 1))
            band = ax.fill_between(positions, low, high, color=style.color, alpha=0.13, linewidth=0)
            line = ax.plot(
                positions, np.exp(curve.nll), color=style.color, ls=style.linestyle, lw=1.7
            )
            tag([band, *line], member)
        ax.set_xscale("log", base=2)
        token_axis(ax.xaxis, num_ticks=8)
        ax.set_title(f"context of {length:,}")
        _trained_lines(ax, here, below=length)
    # Perplexity near the start of a text is that of single tokens: leave room for the rest.
    panels[0].set_yscale("log", base=2)
    token_axis(panels[0].yaxis)
    figure.supxlabel("position in the document (tokens, log scale)", fontsize=10)
    figure.supylabel("perplexity of held-out text (log scale)", fontsize=10)
    member_legend(figure, members)
    return figure


def _trained_lines(ax: Axes, members: Sequence[Member], *, below: float) -> None:
    """A vertical line at each trained length that lies below the end of the axis."""
    for length in sorted({m.trained_length for m in members if m.trained_length < below}):
        ax.axvline(length, color=INK, linewidth=0.9, zorder=1)
        ax.annotate(
            f"trained {length:,}",
            (length, 1),
            (-2, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            ha="right",
            fontsize=8,
            rotation=90,
            bbox={"fc": "white", "ec": "none", "alpha": 0.7, "pad": 1},
            zorder=6,
        )


VALUES = {  # what `Measurement.value` is, by kind of task
    "retrieval": "accuracy, mean over distances",
    "score": "accuracy",
    "accuracy": "share of tokens that are right",
    "likelihood": "nats a token",
}


def by_length_tasks(members: Sequence[Member]) -> list[str]:
    """Tasks that a member was asked at several lengths."""
    found = at_several_lengths(members)
    # The first training rows are others at another length.
    return [task for task in found if not isinstance(evals.parse(task), Step1)]


def by_length(members: Sequence[Member], task: str) -> Figure:
    """What one task measures, by evaluated context length; of retrieval, L50 too."""
    kind = evals.parse(task).kind
    retrieval = kind == "retrieval"
    figure, panels = grid(1 + retrieval, height=4, columns=2)
    look = looks(members)
    shown = [member for member in members if any(name == task for name, _ in member.own)]
    for place, member in enumerate(shown):
        found = [measured for (name, _), measured in member.own.items() if name == task]
        style = look[member.index]
        options = {"color": style.color, "ls": style.linestyle, "lw": 1.7, "marker": "o", "ms": 4}
        lengths, values = [m.length for m in found], [m.value for m in found]
        tag(panels[0].plot(lengths, values, **options), member)
        if retrieval:
            # Side by side: what is farther than could be asked lies on one height.
            aside = 2 ** (0.04 * (place - (len(shown) - 1) / 2))
            places = [aside * length for length in lengths]
            l50_against(panels[1], member, places, [m.estimate for m in found], style)
    lengths = sorted({m.length for member in shown for m in member.own.values() if m.task == task})
    trained = {member.trained_length for member in shown}
    for ax in panels:
        ax.set_xscale("log", base=2)
        for length in trained:
            ax.axvline(length, color=INK, linewidth=0.9, zorder=1)
        marked_lengths(ax.xaxis, {*lengths, *trained}, dict.fromkeys(trained, "trained"))
        ax.set_xlabel("context length evaluated (tokens)")
    panels[0].set_title(f"{folded(task)}:\n{VALUES[kind]}", fontsize=10)
    if kind != "likelihood":
        panels[0].set_ylim(-0.03, 1.03)
    if retrieval:
        panels[1].set_title("effective context (tokens)", fontsize=10)
        estimates = [m.estimate for member in shown for m in member.own.values() if m.task == task]
        if all(estimate.verdict == NOT_LEARNED for estimate in estimates):
            box = {"fc": "white", "ec": "none", "pad": 2}
            middle = {"xycoords": "axes fraction", "ha": "center", "color": FAINT, "bbox": box}
            panels[1].annotate("no member learned it", (0.5, 0.5), **middle)
        # One that can be asked up to here has seen all of its context.
        panels[1].plot(lengths, lengths, color=FAINT, lw=1, ls=_DOTS, zorder=1)
        panels[1].set_yscale("log", base=2)
        token_axis(panels[1].yaxis)
    member_legend(figure, members)
    return figure


def l50_against(
    ax: Axes, member: Member, x: Sequence[float], estimates: Sequence[Estimate], style: Look
) -> None:
    """L50 with its intervals, joined; arrows where it lies beyond what was asked."""
    points = [
        (place, each)
        for place, each in zip(x, estimates, strict=True)
        if each.verdict != NOT_LEARNED
    ]
    tag(
        ax.plot(
            [place for place, _ in points],
            [each.l50 for _, each in points],
            color=style.color,
            ls=style.linestyle,
            lw=1.3,
        ),
        member,
    )
    for place, each in points:
        l50_mark(ax, member, place, each, style)


def l50_mark(ax: Axes, member: Member, x: float, estimate: Estimate, style: Look) -> None:
    """One L50: a mark with its 95% interval, or an arrow to the side on which it lies."""
    l50, color = estimate.l50, style.color
    text = f"{member.label}, {estimate.task} at {estimate.length}: {estimate}"
    artists: list[Artist] = [*ax.plot(x, l50, "o", color=color, ms=5, zorder=4)]
    if estimate.verdict == MEASURED:
        low = max(estimate.ci_low, estimate.shortest, 1)
        high, open_above = min(estimate.ci_high, estimate.longest), np.isinf(estimate.ci_high)
        artists += ax.plot([x, x], [low, high], color=color, lw=2.2, solid_capstyle="butt")
        for end, open_, marker in ((low, estimate.ci_low == 0, "v"), (high, open_above, "^")):
            if open_:  # the interval leaves what was asked
                artists += ax.plot(x, end, marker, color=color, ms=5)
    else:
        up = estimate.verdict.startswith(">")
        artists.append(
            ax.annotate(
                "",
                (x, l50),
                (0, 20 if up else -20),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<|-", "color": color, "lw": 1.4, "shrinkB": 0},
            )
        )
    hint(artists, text, member)


def context_gain(members: Sequence[Member]) -> Figure:
    """Nats that context is worth to the same tokens, a panel a task and length."""
    keys = context_gain_keys(members)
    figure, panels = grid(len(keys), height=3.9, sharey=True)
    look = looks(members)
    for ax, key in zip(panels, keys, strict=True):
        task, length = key
        for member in members:
            if key in member.own:
                style, gain = look[member.index], fixed_target.context_gain(member.own[key].rows)
                mean = np.array([each.mean for each in gain.gains])
                half = 1.96 * np.array([each.standard_error for each in gain.gains])
                options = {"color": style.color, "alpha": 0.13, "linewidth": 0}
                band = ax.fill_between(gain.contexts, mean - half, mean + half, **options)
                line = ax.plot(
                    gain.contexts, mean, color=style.color, ls=style.linestyle, marker="o", ms=3.2
                )
                tag([band, *line], member)
                if gain.gains[-1].mean <= 0:  # nothing of which there could be 95%
                    continue
                mark = ax.plot(
                    gain.length,
                    mean[gain.contexts.index(gain.length)],
                    marker="D",
                    ms=6.5,
                    mfc="white",
                    mec=style.color,
                    mew=1.6,
                    zorder=5,
                )
                hint(mark, f"{member.label}: 95% of the gain from {gain.length} tokens", member)
        ax.set_xscale("log", base=2)
        token_axis(ax.xaxis, num_ticks=8)
        ax.axhline(0, color=FAINT, lw=1, ls=_DOTS, zorder=1)
        ax.set_title(f"{folded(task)}\nat {length:,}", fontsize=10)
    figure.supxlabel("context before the target (tokens, log scale)", fontsize=10)
    figure.supylabel("nats a token less than with the shortest context", fontsize=10)
    enough = Line2D([], [], marker="D", mfc="white", color=INK, ls="none", label="95% of the gain")
    member_legend(figure, members, [enough])
    return figure


def copy_gain(members: Sequence[Member]) -> Figure:
    """What a first saying of a text is worth to the second, by lag: nats above, share below."""
    lengths = copy_gain_lengths(members)
    figure = Figure(figsize=(min(10, 5.6 + 2.2 * len(lengths)), 5.6), layout="constrained")
    above, below = figure.subplots(2, len(lengths), sharex="col", sharey="row", squeeze=False)
    look = looks(members)
    for top, bottom, length in zip(above, below, lengths, strict=True):
        for member in members:
            gain = lagcopy.copy_gain(_copied(member, length))
            for ax, mean, error in (
                (top, gain.nats, gain.nats_error),
                (bottom, gain.accuracy, gain.accuracy_error),
            ):
                style = look[member.index]
                low, high = mean - 1.96 * error, mean + 1.96 * error
                options = {"color": style.color, "alpha": 0.13, "linewidth": 0}
                band = ax.fill_between(gain.lag, low, high, **options)
                line = ax.plot(
                    gain.lag, mean, color=style.color, ls=style.linestyle, marker="o", ms=3.2
                )
                tag([band, *line], member)
        for ax in (top, bottom):
            ax.axhline(0, color=FAINT, lw=1, ls=_DOTS, zorder=1)
        bottom.set_xscale("log", base=2)
        token_axis(bottom.xaxis, num_ticks=8)
        top.set_title(f"context of {length:,}")
    figure.supxlabel("lag: tokens from the first saying to the second (log scale)", fontsize=10)
    above[0].set_ylabel("nats a token less than\nwithout the first saying")
    below[0].set_ylabel("share of right tokens\nabove that without it")
    member_legend(figure, members)
    return figure


def copy_gain_lengths(members: Sequence[Member]) -> list[int]:
    """Lengths at which a member was asked natural text and its control."""
    lengths = {length for member in members for _, length in member.own}
    found = ((length, _copied(member, length)) for length in lengths for member in members)
    return sorted({length for length, rows in found if len(lagcopy.copy_gain(rows).lag)})


def _copied(member: Member, length: int) -> Rows:
    """Its rows of natural text and the control, of all lags."""
    own = [
        (evals.parse(task), measured) for (task, at), measured in member.own.items() if at == length
    ]
    parts = [m.rows for task, m in own if isinstance(task, Lagcopy) and task.text != "random"]
    return rows_lib.concatenate(parts)


def context_gain_keys(members: Sequence[Member]) -> list[tuple[str, int]]:
    """(task, length) of what was evaluated with a fixed target."""
    keys = {key for m in members for key in m.own}
    found = [key for key in keys if isinstance(evals.parse(key[0]), FixedTarget)]
    return sorted(found, key=lambda key: (len(key[0]), key))  # target=64 before target=128
