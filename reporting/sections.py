"""The page's sections in order: what was measured, as far as it was."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from reporting import curves, heat_maps, page_tables, predictors, superficial
from reporting.members import Member, tasks
from reporting.page import Section, Table
from reporting.pictures import Drawing, Pictures

# What there is to draw or to list, by the name it is chosen by; one without a name is always shown.
Found: TypeAlias = Mapping[str, tuple]
Contents: TypeAlias = Callable[[Sequence[Member]], Mapping[str, Drawing | Table]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure, or several of a kind: nothing where there is nothing to draw.

    Attributes:
      found: arguments of `draw` besides the members.
      draw: makes the figure.
      name, alternative, caption: as `Drawing` has them, or made of the same arguments; `{}` stands
        for the name it is chosen by.
    """

    name: str | Callable[..., str]
    found: Callable[[Sequence[Member]], Found]
    draw: Callable[..., Figure]
    alternative: str | Callable[..., str]
    caption: str | Callable[..., str]

    def __call__(self, members: Sequence[Member]) -> dict[str, Drawing]:
        """The figures by name."""
        return {
            name: Drawing(
                name=_said(self.name, name, members, *arguments),
                figure=self.draw(members, *arguments),
                alternative=_said(self.alternative, name, members, *arguments),
                caption=_said(self.caption, name, members, *arguments),
            )
            for name, arguments in self.found(members).items()
        }


def _said(words: str | Callable[..., str], name: str, *arguments: Any) -> str:
    return words.replace("{}", name) if isinstance(words, str) else words(*arguments)


def sections(members: Sequence[Member], pictures: Pictures) -> list[Section]:
    """Those that have something to show."""
    own = _declared(members)
    found = []
    for title in [*SECTIONS, *(title for title in own if title not in SECTIONS), *LAST]:
        makers = {**SECTIONS, **LAST}.get(title, ())
        made = [item for make in makers for item in make(members).items()]
        parts, choices = [], {}
        for name, part in made + own.get(title, []):
            shown = pictures.save(part) if isinstance(part, Drawing) else part
            if name:
                choices[name] = shown
            else:
                parts.append(shown)
        if parts or choices:
            found.append(Section(title=title, parts=parts, choices=choices))
    return found


def _declared(members: Sequence[Member]) -> dict[str, list[tuple[str, Drawing | Table]]]:
    """What tasks declare to be shown besides, by section."""
    found: dict[str, list[tuple[str, Drawing | Table]]] = {}
    for plot, panels in curves.declared(members):
        drawing = Drawing(
            name=plot.name,
            figure=curves.draw(members, plot, panels),
            alternative=plot.alternative,
            caption=plot.caption,
        )
        found.setdefault(plot.section, []).append(("", drawing))
    for section, tables in page_tables.shares(members).items():
        found.setdefault(section, []).extend(tables.items())
    return found


def _if(found: Callable[[Sequence[Member]], Any]) -> Callable[[Sequence[Member]], Found]:
    """One figure of all that was found."""
    return lambda members: {"": ()} if found(members) else {}


def _by_task(found: Callable[[Sequence[Member]], Sequence[str]]):
    return lambda members: {task: (task,) for task in found(members)}


def _compared(members: Sequence[Member]) -> Found:
    found = predictors.comparisons(members)
    several = len({each.trained_length for each in found}) > 1
    return {
        each.task + (f", trained on {each.trained_length:,}" if several else ""): (each,)
        for each in found
    }


def _at_trained_lengths(members: Sequence[Member]) -> Found:
    """The leading task, where there is a series of trained lengths."""
    found = [task for task in tasks(members)[:1] if predictors.by_trained_length(members, task)]
    return {"": (found[0],)} if found else {}


def _trained_lengths(members: Sequence[Member]) -> dict[str, Table]:
    found = _at_trained_lengths(members).items()
    return {name: page_tables.trained_lengths(members, *task) for name, task in found}


def _scores(members: Sequence[Member]) -> dict[str, Table]:
    table = page_tables.scores(members)
    return {"": table} if table else {}


def _matrices(members: Sequence[Member]) -> Found:
    keys = heat_maps.matrix_keys(members)
    return {f"{task} at {length:,}": (task, length) for task, length in keys}


PREDICTORS = (
    "Bars: 95% intervals over documents and seeds; arrows: bases that see beyond what was asked, "
    "which no line is fitted to. Lines: least squares in logarithms, a point for each base (the "
    "mean of its seeds), with 95% intervals; the intercept is log₂ tokens where the predictor is "
    "1. A base left out: what the line fitted without a base misses it by, root mean square."
)
SECTIONS: dict[str, Sequence[Contents]] = {
    "Effective context by other rules": [page_tables.rules],
    "Against the trained length": [
        Plot(
            name="trained_length",
            found=_at_trained_lengths,
            draw=predictors.against_trained_length,
            alternative="Effective context against trained length, a line for every base.",
            caption="Does a small base bound what a model learns to see? Then its line is flat "
            "where the diagonal rises on. Bars: 95% intervals; an arrow where accuracy had not "
            "fallen at the longest distance asked. Lines are drawn side by side at each trained "
            "length.",
        ),
        _trained_lengths,
    ],
    "Against what the frequencies predict": [
        Plot(
            name="predictors {}",
            found=_compared,
            draw=lambda members, compared: predictors.against_predictors(compared, members),
            alternative="Effective context on {} against lengths that the frequencies predict.",
            caption=lambda members, compared: f"{predictors.reading(compared)} {PREDICTORS}",
        )
    ],
    "Accuracy by distance": [
        Plot(
            name="accuracy_by_distance",
            found=_if(curves.accuracy_panels),
            draw=curves.accuracy_by_distance,
            alternative="Accuracy against the distance to the answer, for every member and task.",
            caption="Accuracy against the distance between a question and the tokens that answer "
            f"it, by half octaves of at least {curves.MIN_TRIALS} questions, with Wilson's 95% "
            "intervals. A diamond marks effective context, half-way from ceiling to chance. "
            "Accuracy may revive where the slowest pair has completed a cycle.",
        )
    ],
    "By context length": [
        Plot(
            name="length {}",
            found=_by_task(curves.by_length_tasks),
            draw=curves.by_length,
            alternative="{} against evaluated context length, for every member.",
            caption="The same members in shorter and longer contexts than they were trained on. "
            "Retrieval: mean over distances up to the context length, so a model that sees a fixed "
            "distance falls as 1/length; effective context with 95% intervals, which does not fall "
            "for that reason alone.",
        )
    ],
    "By context length and place": [
        Plot(
            name="heat_map {}",
            found=_by_task(heat_maps.place_tasks),
            draw=heat_maps.places,
            alternative="{}: right answers by context length and place, for every member.",
            caption="Share of exact answers by place in the context; point at a cell for its "
            "number. A black line: beyond the trained length. Grey: not asked, because no question "
            "could stand there.",
        ),
        Plot(
            name="heat_map {}",
            found=_by_task(heat_maps.distance_tasks),
            draw=heat_maps.places,
            alternative="{}: accuracy by context length and distance, for every member.",
            caption="Share of exact answers by half octaves of distance; point at a cell for its "
            "number. A black line with a white edge: effective context. An upright one: beyond the "
            "trained length. Grey: not asked.",
        ),
    ],
    "Trained with, evaluated with": [
        Plot(
            name=lambda _, task, length: f"matrix {task} {length}",
            found=_matrices,
            draw=heat_maps.matrix,
            alternative=lambda members, task, length: (
                f"{task} at {length:,} tokens, by variant trained with and evaluated with: "
                + heat_maps.said(members, task, length)
            ),
            caption="Rows: the variant a model was trained with; columns: the one it was evaluated "
            "with, its other parameters those of training. Brighter is better. Small: 95% "
            "intervals; >: not fallen at the longest distance asked. Grey: not evaluated.",
        )
    ],
    "Answers from a whole context": [_scores],
    "Perplexity in numbers": [page_tables.texts],
    "Perplexity and context": [
        Plot(
            name="superficial",
            found=_if(superficial.superficial_lengths),
            draw=superficial.superficial,
            alternative="Perplexity relative to the best member, and retrieval, against RoPE base.",
            caption="Perplexity over that of the best member (above) and retrieval accuracy "
            "(below) against base: a context is superficial where the first stays flat while the "
            "second falls (Men et al., arXiv 2405.14591, Figures 3 and 6).",
        ),
    ],
}
LAST: dict[str, Sequence[Contents]] = {
    "Training loss": [
        Plot(
            name="loss",
            found=_if(lambda members: any(member.losses for member in members)),
            draw=curves.loss,
            alternative="Training loss in nats per token against tokens seen, for every member.",
            caption="Training loss on all rows, text and retrieval, averaged over neighbouring "
            "records.",
        )
    ],
}
