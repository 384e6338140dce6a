"""The leading figure: effective context of each member beside its theory length."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from ropewalk.reporting import l50
from ropewalk.reporting.members import Member, describe_intervals, describe_trend, tasks
from ropewalk.reporting.page import Item, make_figure
from ropewalk.utils import figures

_FARTHEST = 8  # times the trained length, at which the axis ends


def leading_figure(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure of effective context on the leading task, if any was evaluated."""
    for task in tasks(members)[:1]:
        estimates = {m.label: m.estimates[task] for m in members if task in m.estimates}
        texts = "; ".join(f"{label}: {estimate}" for label, estimate in estimates.items())
        values = {"estimates": texts, "over": describe_intervals(members)}
        draw = draw_effective_context
        yield make_figure("Effective context", "effective_context", draw, members, **values)


def draw_effective_context(members: Sequence[Member]) -> Figure:
    """Draw a row per member that was evaluated on the leading task: measurement and theory."""
    task = tasks(members)[0]
    shown = [member for member in members if task in member.estimates]
    estimates = [member.estimates[task] for member in shown]
    figure, (ax,), rows = figures.row_panels(1, shown, [member.words for member in shown])
    lengths = sorted({member.trained_length for member in shown})
    end = _FARTHEST * max(*lengths, *(e.length for e in estimates))
    for y, member, estimate in zip(rows, shown, estimates, strict=True):
        l50.draw_l50(ax, y, member, estimate, row=True)
        length = member.theory_length
        if length is not None and length < end:
            mark = ax.plot(length, y, "|", color=figures.INK, ms=14, mew=2.2, zorder=3)
            figures.tag(mark, member, f"{member.label}: theory length {length:,}")
        elif length is not None:
            text, edge = f"theory {length:,} ▸", ax.get_yaxis_transform()
            style = {"xycoords": edge, "ha": "right", "va": "center", "fontsize": 8.5}
            figures.note(ax, text, (1, y), (0, 0), **style)
    for length in lengths:
        ax.axvline(length, zorder=1, **figures.REFERENCE)
    figures.token_axis(ax.xaxis)
    values = [member.theory_length or end for member in shown]
    values += [v for e in estimates for v in (e.mark, e.ci_low) if e.has_l50 and v > 0]
    ax.set_xlim(max(min(values) / 1.6, 0.7), end)
    ax.set_xlabel("distance (tokens, log scale)")
    evaluated = sorted({estimate.length for estimate in estimates} - {*lengths})
    at = ", evaluated at " + ", ".join(f"{length:,}" for length in evaluated) if evaluated else ""
    figures.set_message(figure, describe_trend(shown, task) + at)
    theory = figures.mark_handle("theory length", "|", ms=12, mew=2.2)
    trained = figures.handle("trained length", **figures.REFERENCE)
    figures.add_legend(figure, [*l50.handles(estimates), theory, trained], below=True)
    return figure
