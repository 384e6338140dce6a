"""Figures of a study's report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.trials import Trials
from studies.recall import MINIMAL_HEAD, Comparison, errors
from studies.results import CardResults, Key
from studies.verdicts import judge_bound
from utils.figures import (
    DASHED,
    DOTTED,
    FAINT,
    INK,
    PAPER,
    REFERENCE,
    Look,
    add_legend,
    grid,
    handle,
    label_rows,
    label_x,
    make_looks,
    mark_handle,
    set_title,
    tag,
    token_axis,
)

_MIN_TRIALS = 30  # bins are joined until each has this many in every seed
# Lines of a card's measurements after the first.
_OTHERS = {"color": INK, "lw": 1.2}, {"color": FAINT, "lw": 1.2}
_FULL, _SMALL = 6.5, 3.5  # sizes of marks: three seeds or more, and fewer
_OLDER = 0.4  # opacity of a forecast after rows


class Model(NamedTuple):
    """A member of a card in the figures and tables of a page (`utils.figures.Series`)."""

    index: int
    label: str
    look: Look
    base: float | None


Models = Mapping[tuple[str, str], Model]  # by the names of card and member


def make_models(cards: Sequence[CardResults]) -> Models:
    """Return the models of all cards; those of equal bases and heads have the same look."""
    configs = {
        (card.card.name, member): config.model
        for card in cards
        for member, config in card.card.configs().items()
    }
    codes = [(getattr(c.rotary, "base", None), c.num_heads) for c in configs.values()]
    unique = sorted(set(codes), key=lambda code: (code[0] is None, code))
    looks = make_looks([base for base, _ in unique], [heads for _, heads in unique])
    # Without a base, one solid line: every panel has one model.
    by_code = {
        code: look if code[0] else look._replace(linestyle="-")
        for code, look in zip(unique, looks, strict=True)
    }
    return {
        key: Model(index, " ".join(key), by_code[code], code[0])
        for index, (key, code) in enumerate(zip(configs, codes, strict=True))
    }


def draw_forecasts(comparisons: Sequence[Comparison], models: Models) -> Figure:
    """Draw measured against forecast L50 and mean accuracy: a column per theory, a mark per member.

    L50 is that of members with one head; a triangle points to where an L50 is that is beyond all
    distances. Rivals of the minimal head have the constant that fits these members best.
    """
    last = {(item.card.name, item.member): item for item in comparisons if item.is_learned}
    items = [item for item in last.values() if not item.repeats]
    single = [item for item in items if item.has_one_head]
    names = list(items[0].lengths) if items else []
    figure, axes = grid(max(1, len(names)), rows=2, columns=4, height=2.8, sharey="row")
    for name, (above, below) in zip(names, axes, strict=False):
        is_rival = name != MINIMAL_HEAD
        of_l50, of_mean = errors(single, name), errors(items, name, of_accuracy=True)
        constant = of_l50.constant if is_rival else 1.0
        for item in single:
            _draw_l50_point(above, item, models, constant * item.lengths[name])
        for item in items:
            error = item.record["mean_accuracy"] - item.measured.mean_accuracy
            if is_rival:
                error = item.accuracy_error(of_mean.constant * item.lengths[name])
            y = item.measured.mean_accuracy
            _draw_mark(below, item, models, (y + error, y), "o" if item.has_one_head else "s")
        rms = of_l50.rms_fitted if is_rival else of_l50.rms
        set_title(above, f"{name}{f' × {constant:.2f}' * is_rival}\nrms {rms:.2f} octaves")
        rms = of_mean.rms_fitted if is_rival else of_mean.rms
        times = f"× {of_mean.constant:.2f}: " if is_rival else ""
        set_title(below, f"{times}rms {rms:.3f}")
        above.plot([1, 512], [1, 512], zorder=1, **REFERENCE)
        below.plot([0, 1], [0, 1], zorder=1, **REFERENCE)
        for axis in (above.xaxis, above.yaxis):
            token_axis(axis)
        above.set(xlim=(1.5, 400), ylim=(1.5, 400))
    label_x(figure, axes, "forecast: L50 (tokens) above, mean accuracy below")
    label_rows(axes, ("measured L50 (tokens)", "measured\nmean accuracy"))
    drawn = {models[item.card.name, item.member] for item in items}
    bases = {model.base: model.look.color for model in drawn}
    add_legend(
        figure,
        [
            *(
                mark_handle(f"base {base:g}", "o", color=bases[base])
                for base in sorted(filter(None, bases))
            ),
            *([mark_handle("no single base", "o", color=FAINT)] if None in bases else []),
            mark_handle("several heads", "s"),
            mark_handle("beyond all\ndistances", "^"),
            mark_handle("fewer than\nthree seeds", "o", ms=_SMALL),
            mark_handle("rows before\nforecast", "o", alpha=_OLDER),
            handle("forecast =\nmeasured", **REFERENCE),
        ],
    )
    return figure


def _draw_l50_point(ax: Axes, item: Comparison, models: Models, length: float) -> None:
    """Draw L50, as a triangle up or right where it is beyond; nothing if both are."""
    longest = item.measured.longest
    is_beyond = item.measured.verdict.startswith(">")
    if not (is_beyond and length >= longest):
        marker = "^" if is_beyond else ">" if length >= longest else "o"
        _draw_mark(ax, item, models, (min(length, longest), item.measured.l50), marker)


def _draw_mark(
    ax: Axes, item: Comparison, models: Models, at: tuple[float, float], marker: str
) -> None:
    model = models[item.card.name, item.member]
    size = _SMALL if item.measured.num_seeds < 3 else _FULL
    alpha = 1 if item.card.is_blind else _OLDER
    point = ax.plot(*at, marker, ms=size, color=model.look.color, alpha=alpha, mew=0)
    tag(point, model, f"{model.label}: {item.error_text}")


def draw_curves(
    card: CardResults, recalls: Mapping[str, Mapping[str, Any]], models: Models
) -> Figure:
    """Draw accuracy by distance, a panel per member: thin lines for seeds, a thick one for all.

    Args:
      card: results.
      recalls: forecasts of the card by `studies.recall`, by member and tokens.
      models: of the page.
    """
    figure, axes = grid(len(card.last_rows), height=2.6, sharey=True)
    names = [measurement.name for measurement in card.card.measurements]
    for (ax,), member in zip(axes, card.last_rows, strict=True):
        model = models[card.card.name, member]
        looks = dict(zip(names, [model.look.line, *_OTHERS], strict=False))
        for (name, measurement, _), trials in card.trials.items():
            if name == member:
                tag(_draw_curve(ax, trials, looks[measurement]), model)
        verdict = judge_bound(card, member, names[0])
        set_title(ax, f"{member}\nD_H: {verdict}")
        if key := card.find_key(member, names[0]):
            _draw_l50(ax, card, key, model)
            tokens = max(row.tokens for row in card.last_rows[member].values())
            _draw_recall(ax, recalls.get(member, {}), tokens)
        ax.set_ylim(-0.03, 1.03)
        token_axis(ax.xaxis)
    label_x(figure, axes, "distance to the answer (tokens, log scale)")
    figure.supylabel("accuracy (exact match)")
    shown = {
        models[card.card.name, member].base: models[card.card.name, member].look
        for member in card.last_rows
    }
    handles = [
        handle("no single base" if base is None else f"base {base:g}", color=look.color, lw=1.8)
        for base, look in shown.items()
    ]
    handles += [handle("one seed", color=FAINT, lw=0.7)]
    handles += [handle(name, **look) for name, look in zip(names[1:], _OTHERS, strict=False)]
    handles += [handle("D_H", color=INK, lw=1.2, ls=DASHED)]
    if recalls:
        handles.append(handle("minimal head", color=INK, lw=1.2, ls=DOTTED))
    add_legend(figure, [*handles, mark_handle("measured L50", "D", ms=6)])
    return figure


def _draw_l50(ax: Axes, card: CardResults, key: Key, model: Model) -> None:
    """Draw D_H's bound and measured L50, if they are within the distances measured."""
    estimate, forecast = card.estimates[key], card.forecasts.get(key[:2], math.nan)
    if forecast < estimate.longest:
        ax.axvline(forecast, color=INK, lw=1.2, ls=DASHED, zorder=2)
    if all(seed.learned and not seed.beyond for seed in estimate.seeds):
        half = (estimate.ceiling + estimate.chance) / 2
        mark = ax.plot(estimate.l50, half, "D", ms=6, color=model.look.color, mec=PAPER, zorder=5)
        tag(mark, model, f"{model.label}: L50 {estimate}")


def _draw_recall(ax: Axes, records: Mapping[str, Any], tokens: int) -> None:
    """Draw the minimal head's accuracy at the budget nearest to `tokens`, if there is one."""
    if records:
        nearest = min(records, key=lambda text: abs(math.log(int(text) / tokens)))
        low, accuracy = zip(*records[nearest]["bins"], strict=True)
        # A bin of half an octave begins at `low`; it stands at its middle.
        x = [start * 2**0.25 if start > 2 else start for start in low]
        ax.plot(x, accuracy, color=INK, lw=1.2, ls=DOTTED, zorder=4)


def _draw_curve(ax: Axes, trials: Trials, look: Mapping[str, Any]) -> list[Artist]:
    joined = trials.with_min_trials(_MIN_TRIALS)
    x, lines = 2**joined.x, []
    questions_SF, right_SF = joined.questions.sum(1), joined.right.sum(1)
    if len(questions_SF) > 1:
        for questions_F, right_F in zip(questions_SF, right_SF, strict=True):
            lines += ax.plot(x, right_F / questions_F, **{"lw": 0.7, "alpha": 0.6, **look})
    total_F = right_SF.sum(0) / questions_SF.sum(0)
    return lines + ax.plot(x, total_F, **{"lw": 1.8, **look})
