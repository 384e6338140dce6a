"""Figures and tables of this study's report, beside its claims."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk.evals.estimate.effective_context import MEASURED, Estimate, Seed
from ropewalk.reporting.page import NONE, Drawing, Item, Table, format_caption, format_captions
from ropewalk.studies.capability import forecasts, results, theories
from ropewalk.studies.capability.theories import MINIMAL_HEAD, THEORIES, Comparison
from ropewalk.studies.card import HELD, REFUTED, Card, Value
from ropewalk.studies.rows import Row
from ropewalk.utils import figures as kit
from ropewalk.utils.messages import counted

_BANDS = (0, 100, 300, math.inf)  # thousand answers
_MIN_TRIALS = 30  # bins are joined until each has this many in every seed
# Lines of measurements after the first.
_OTHERS = {"color": kit.INK, "lw": 1.2}, {"color": kit.FAINT, "lw": 1.2}


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield the parts of the report about these cards."""
    recall, bounds = forecasts.read(forecasts.RECALL), forecasts.read(forecasts.BOUNDS)
    names = {card.name for card in cards}
    compared = [item for item in theories.compare(tuple(rows)) if item.card in names]
    if compared:
        draw = functools.partial(draw_forecasts, compared)
        yield "Theories", "", Drawing("forecasts", draw, format_captions("study_forecasts"))
        caption = format_caption("study_errors")
        yield "Theories", "", Table.from_cells(_errors(compared), caption=caption)
    for card in (card for card in cards if card.members):
        title = f"{card.name}: {card.question}"
        bound_of, curves = bounds.get(card.name, {}), recall.get(card.name, {})
        draw = functools.partial(draw_curves, card, rows, bound_of, curves)
        captions = format_captions("study_curves", card=card.name)
        yield title, "", Drawing(f"curves {card.name}", draw, captions)
        tables = {
            "study_numbers": _members(card, rows, bound_of),
            "study_recall": [_forecast_cells(x) for x in compared if x.card == card.name],
        }
        for name, cells in tables.items():
            if cells:
                lines, caption = [(None, line) for line in cells], format_caption(name)
                yield title, "", Table.from_cells(lines, has_all_columns=True, caption=caption)


def _bound(bounds: Mapping[str, Any], member: str, measurement: str) -> float:
    """Return D_H in tokens; inf: beyond all distances, NaN: none."""
    return forecasts.l50_of(bounds.get(member, {}).get(measurement, {"l50": None}))


def _mark_of_bound(estimate: Estimate, bound: float) -> str:
    """Return the mark of D_H as a bound on L50, by the interval of L50."""
    if not bound < estimate.longest:
        return "no bound within the distances"
    mark = results.l50_value(estimate).mark(bound, math.inf)
    return {HELD: "exceeds", REFUTED: "below"}.get(mark, "undecided")


def _members(card: Card, rows: Sequence[Row], bounds: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the cells of each member and measurement."""
    lines = []
    for member, measurement in itertools.product(card.members, card.measurements):
        last = results.last_rows(card, rows, member)
        estimate = results.estimate_rows(last, measurement.name)
        bound = _bound(bounds, member, measurement.name)
        several = len(card.measurements) > 1
        cells = {"member": member + f", {measurement.name}" * several}
        cells["D_H"] = NONE if math.isnan(bound) else f"{bound:.3g}"
        if estimate:
            cells["D_H as a bound"] = _mark_of_bound(estimate, bound)
            cells |= {"L50 [95% CI]": str(estimate), "n": counted(estimate.num_seeds, "seeds")}
            cells["each seed"] = " / ".join(map(_describe_seed, estimate.seeds))
            cells["worst bin"] = estimate.worst_text
            cells |= {"mean accuracy": estimate.mean_text, "ceiling": f"{estimate.ceiling:.2f}"}
            answers = sorted({results.count_answers(row) for row in last})
            cells["answers"] = " / ".join(f"{count / 1000:,.0f}k" for count in answers)
            cells["finished"] = "yes" if all(row.final for row in last) else "no"
        lines.append(cells)
    return lines


def _describe_seed(seed: Seed) -> str:
    """Return L50 of a seed in tokens, or why it has none."""
    if seed.verdict == MEASURED:
        return f"{seed.l50:.3g}"
    return seed.verdict.lower().replace("_", " ")


def _forecast_cells(item: Comparison) -> dict[str, str]:
    octaves = item.octaves(item.lengths[MINIMAL_HEAD])
    return {
        "member": item.member,
        "after": f"{item.answers / 1000:,.0f}k answers",
        "minimal head": forecasts.describe(item.record),
        "L50 [95% CI]": str(item.measured),
        "mean accuracy": item.measured.mean_text,
        "octaves": NONE if math.isnan(octaves) else f"{octaves:+.2f}",
        "bias": f"{item.bias:+.3f}",
        "curve": f"{item.curve_error:.3f}",
        "order": "forecast before any row" if item.is_blind else "rows before forecast",
    }


def _errors(compared: Sequence[Comparison]) -> list[tuple[None, dict[str, str]]]:
    """Return the errors of each theory over several groups of members."""
    groups = [
        ("forecast first" if is_blind else "rows first", low, high, {"is_blind": is_blind})
        for (low, high), is_blind in itertools.product(itertools.pairwise(_BANDS), (True, False))
    ]
    plain = {"is_plain": True, "head_dim": 64}
    groups += [
        ("one head of 64, one base", *ends, plain) for ends in ((150, 200), (1000, math.inf))
    ]
    lines = []
    for name, low, high, fields in groups:
        items = theories.select(compared, low, high, is_learned=True, **fields)
        single = [item for item in items if item.has_one_head]
        for theory in THEORIES if len(single) > 1 else ():
            of_mean = theories.error(items, theory, of_accuracy=True)
            of_l50 = theories.error(single, theory, of_accuracy=False)
            raw = theories.error(single, theory, of_accuracy=False, fit=False)
            counts = [item.answers / 1000 for item in items]
            cells = {"members": name, "answers": f"{min(counts):,.0f}k to {max(counts):,.0f}k"}
            cells |= {"theory": theory, "n": str(of_mean.rms.n)}
            cells["mean accuracy, rms"] = str(of_mean.rms)
            cells |= {"n of one head": str(raw.rms.n), "L50, octaves rms": str(raw.rms)}
            if theory != MINIMAL_HEAD:
                cells["with one constant"] = f"{of_l50.rms}, x{of_l50.constant}"
            lines.append((None, cells))
    return lines


def draw_forecasts(compared: Sequence[Comparison]) -> Figure:
    """Draw measured against forecast L50 and mean accuracy: a column per theory, a mark per member.

    Members have their largest budget, with 95% intervals. L50 is that of members with one head; one
    whose seeds are more than an octave apart has a mark for each seed. A triangle points to where
    an L50 is that is beyond all distances.
    """
    last = {(item.card, item.member): item for item in compared if item.is_learned}
    items = list(last.values())
    single = [item for item in items if item.has_one_head]
    looks = kit.make_looks([item.base for item in items], [1] * len(items), spread=True)
    colors = {item.base: look.color for item, look in zip(items, looks, strict=True)}
    figure, axes = kit.grid(len(THEORIES), rows=2, columns=4, height=2.8, sharey="row")
    for theory, (above, below) in zip(THEORIES, axes, strict=True):
        fit = theory != MINIMAL_HEAD
        of_l50 = theories.error(single, theory, of_accuracy=False)
        of_mean = theories.error(items, theory, of_accuracy=True)
        for item in single:
            length = item.lengths[theory] * of_l50.constant.value
            _draw_l50(above, item, length, colors[item.base])
        for item in items:
            y, length = item.measured.mean_accuracy, item.lengths[theory] * of_mean.constant.value
            x = y + (item.accuracy_error(length) if fit else item.bias)
            ends = item.measured.mean_accuracy_low, item.measured.mean_accuracy_high
            marker = "o" if item.has_one_head else "s"
            kit.error_bar(below, x, y, ends, **_style(item, colors[item.base], marker))
        times = f" × {of_l50.constant.value:.2f}" * fit
        kit.set_title(above, f"{theory}{times}\nrms {_two_lines(of_l50.rms)}, octaves")
        times = f"× {of_mean.constant.value:.2f}, " * fit
        kit.set_title(below, f"{times}rms {_two_lines(of_mean.rms)}")
        above.plot([1, 512], [1, 512], zorder=1, **kit.REFERENCE)
        below.plot([0, 1], [0, 1], zorder=1, **kit.REFERENCE)
        for axis in (above.xaxis, above.yaxis):
            kit.token_axis(axis)
        above.set(xlim=(1.5, 400), ylim=(1.5, 400))
    figure.supxlabel("forecast: L50 (tokens) above, mean accuracy below")
    kit.label_rows(axes, ("measured L50 (tokens)", "measured\nmean accuracy"))
    # Colors follow the order of the bases, so some of them explain the others.
    bases = sorted(base for base in colors if base)
    named = bases[:: max(1, len(bases) // 6)]
    handles = [kit.mark_handle(f"base {base:g}", "o", color=colors[base]) for base in named]
    handles += [kit.mark_handle("no single base", "o", color=kit.FAINT)] if None in colors else []
    handles += [
        kit.mark_handle("several heads", "s"),
        kit.mark_handle("beyond all\ndistances", "^"),
        kit.mark_handle("fewer than\nthree seeds", "o", ms=3.5),
        kit.mark_handle("rows before\nforecast", "o", alpha=0.4),
        kit.handle("forecast =\nmeasured", **kit.REFERENCE),
    ]
    kit.add_legend(figure, handles)
    return figure


def _two_lines(value: Value) -> str:
    return f"{value.value:.2g}, n = {value.n}\n[{value.low:.2g}, {value.high:.2g}]"


def _style(item: Comparison, color: str, marker: str) -> dict[str, Any]:
    size = 3.5 if item.measured.num_seeds < 3 else 5.5
    alpha = 1 if item.is_blind else 0.4
    return {"fmt": marker, "ms": size, "color": color, "alpha": alpha, "mew": 0, "elinewidth": 0.8}


def _draw_l50(ax: Axes, item: Comparison, length: float, color: str) -> None:
    """Draw L50, as a triangle up or right where it is beyond; nothing if both are."""
    measured, longest = item.measured, item.measured.longest
    lengths = [longest if seed.beyond else seed.l50 for seed in measured.seeds]
    x, is_beyond = min(length, longest), all(seed.beyond for seed in measured.seeds)
    if max(lengths) > 2 * min(lengths):
        style = _style(item, color, "x") | {"mew": 1}
        for y in lengths:
            kit.error_bar(ax, x, y, (y, y), **style)
    elif not (is_beyond and length >= longest):
        marker = "^" if is_beyond else ">" if length >= longest else "o"
        ends = measured.ci_low, min(measured.ci_high, longest)
        kit.error_bar(ax, x, measured.l50, ends, **_style(item, color, marker))


def draw_curves(
    card: Card, rows: Sequence[Row], bounds: Mapping[str, Any], recall: Mapping[str, Any]
) -> Figure:
    """Draw accuracy by distance, a panel per member: thin lines for seeds, a thick one for all.

    Args:
      card: the card.
      rows: of the study.
      bounds, recall: forecasts of the card by member.
    """
    configs = results.configs_of(card)
    bases = [getattr(config.model.rotary, "base", None) for config in configs.values()]
    looks = [look._replace(linestyle="-") for look in kit.make_looks(bases, [1] * len(bases))]
    figure, axes = kit.grid(len(configs), height=2.6, sharey=True)
    names = [measurement.name for measurement in card.measurements]
    for (ax,), member, look in zip(axes, configs, looks, strict=True):
        last = results.last_rows(card, rows, member)
        for name, line in zip(names, (look.line, *_OTHERS), strict=False):
            _draw_curve(ax, last, name, line)
        estimate = results.estimate_rows(last, names[0])
        bound = _bound(bounds, member, names[0])
        title = member
        if estimate:
            mark = _mark_of_bound(estimate, bound)
            # No-break spaces: long names wrap before "n".
            title = (
                f"{member}, n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{estimate.num_seeds}\nD_H: {mark}"
            )
            _draw_mark(ax, estimate, bound, look)
            _draw_recall(ax, recall.get(member, {}), max(row.tokens for row in last))
        kit.set_title(ax, title)
        ax.set_ylim(-0.03, 1.03)
        kit.token_axis(ax.xaxis)
    figure.supxlabel("distance to the answer (tokens, log scale)")
    figure.supylabel("accuracy (exact match)")
    shown = dict(zip(bases, looks, strict=True))
    handles = [
        kit.handle("no single base" if base is None else f"base {base:g}", color=look.color, lw=1.8)
        for base, look in shown.items()
    ]
    handles += [kit.handle("one seed", color=kit.FAINT, lw=0.7)]
    handles += [kit.handle(name, **look) for name, look in zip(names[1:], _OTHERS, strict=False)]
    handles += [kit.handle("D_H", color=kit.INK, lw=1.2, ls=kit.DASHED)]
    if recall:
        handles.append(kit.handle("minimal head", color=kit.INK, lw=1.2, ls=kit.DOTTED))
    kit.add_legend(figure, [*handles, kit.mark_handle("measured L50", "D", ms=6)])
    return figure


def _draw_mark(ax: Axes, estimate: Estimate, bound: float, look: kit.Look) -> None:
    """Draw D_H's bound and measured L50, if they are within the distances measured."""
    if bound < estimate.longest:
        ax.axvline(bound, color=kit.INK, lw=1.2, ls=kit.DASHED, zorder=2)
    if estimate.has_l50 and all(seed.learned and not seed.beyond for seed in estimate.seeds):
        half = (estimate.ceiling + estimate.chance) / 2
        lengths = [seed.l50 for seed in estimate.seeds]
        # No mean describes seeds that are more than an octave apart.
        x = lengths if max(lengths) > 2 * min(lengths) else [estimate.l50]
        ax.plot(x, [half] * len(x), "D", ms=6, color=look.color, mec=kit.PAPER, zorder=5)


def _draw_recall(ax: Axes, records: Mapping[str, Any], tokens: int) -> None:
    """Draw the minimal head's accuracy at the budget nearest to `tokens`, if there is one."""
    if records:
        nearest = min(records, key=lambda text: abs(math.log(int(text) / tokens)))
        low, accuracy = zip(*records[nearest]["bins"], strict=True)
        # A bin of half an octave begins at `low`; it stands at its middle.
        x = [start * 2**0.25 if start > 2 else start for start in low]
        ax.plot(x, accuracy, color=kit.INK, lw=1.2, ls=kit.DOTTED, zorder=4)


def _draw_curve(ax: Axes, rows: Sequence[Row], measurement: str, line: Mapping[str, Any]) -> None:
    if not (joined := results.join_trials(rows, measurement)):
        return
    joined = joined[0].with_min_trials(_MIN_TRIALS)
    x, questions_SF, right_SF = 2**joined.x, joined.questions.sum(1), joined.right.sum(1)
    if len(questions_SF) > 1:
        for questions_F, right_F in zip(questions_SF, right_SF, strict=True):
            ax.plot(x, right_F / questions_F, **{"lw": 0.7, "alpha": 0.6, **line})
    ax.plot(x, right_SF.sum(0) / questions_SF.sum(0), **{"lw": 1.8, **line})
