"""Sections of the page in order; a section without results is left out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from matplotlib.figure import Figure

from reporting import curves, heat_maps, inside, over_seeds, page_tables, predictors, superficial
from reporting.labels import describe_seeds
from reporting.members import Member, describe_intervals, tasks
from reporting.page import Section, Table, format_captions
from reporting.pictures import Drawing, save
from reporting.task_view import all_views

# A section's title; the part's name among the section's choices, or empty; the part.
Item: TypeAlias = tuple[str, str, Drawing | Table]


def make_sections(members: Sequence[Member], page: Path) -> list[Section]:
    """Return all sections with results; their figures are saved beside `page`."""
    sections: dict[str, Section] = {}
    for title, name, part in _list_items(members):
        part = save(part, page, members) if isinstance(part, Drawing) else part
        section = sections.setdefault(title, Section(title=title, parts=[], choices={}))
        if name:
            section.choices[name] = part
        else:
            section.parts.append(part)
    return list(sections.values())


def _drawing(name: str, figure: Figure, captions: str, /, **values: object) -> Drawing:
    """Return a drawing with the captions of this name in captions.toml."""
    return Drawing(name, figure, format_captions(captions, **values))


def _list_items(members: Sequence[Member]) -> Iterator[Item]:
    for task, table in page_tables.rules(members).items():
        yield "Effective context by other definitions", task, table
    yield from _over_seeds(members)
    yield from _predictions(members)
    if probed := inside.probed(members):
        title, captions = "Empirical B(m) of each head", inside.zeros_captions(probed)
        yield title, "", Drawing("inside", inside.draw_zeros(probed), captions)
        yield title, "", inside.zeros_table(probed)
    if curves.accuracy_panels(members):
        figure, name = curves.draw_accuracy_by_distance(members), "accuracy_by_distance"
        yield "Accuracy by distance", "", _drawing(name, figure, name, trials=curves.MIN_TRIALS)
    over = describe_intervals(members)
    for task in curves.by_length_tasks(members):
        figure = curves.draw_by_length(members, task)
        part = _drawing(f"length {task}", figure, "length", name=task, over=over)
        yield "By context length", task, part
    yield from _heat_maps(members)
    if table := page_tables.scores(members):
        yield "Whole-context tasks", "", table
    for task, table in page_tables.texts(members).items():
        yield "Likelihood of text", task, table
    if superficial.superficial_lengths(members):
        figure = superficial.draw_superficial(members)
        yield "Perplexity and context", "", _drawing("superficial", figure, "superficial")
    for plot, panels in curves.task_plots(members):
        captions = {"alternative": plot.alternative, "caption": plot.caption}
        yield plot.section, "", Drawing(plot.name, curves.draw(members, plot, panels), captions)
    for view in all_views().values():
        yield from view.tables(members)
    if any(member.losses for member in members):
        yield "Training loss", "", _drawing("loss", curves.draw_loss(members), "loss")


def _over_seeds(members: Sequence[Member]) -> Iterator[Item]:
    """Yield a figure for each field in which members differ, if members have several seeds."""
    if not over_seeds.list_measures(members):
        return
    title = "Over seeds"
    seeds = describe_seeds([run.config for member in members for run in member.runs])
    figures = over_seeds.draw_seeds(members)
    for axis, figure in figures.items():
        values = {"seeds": seeds, "axis": axis or "the only setting"}
        part = _drawing(f"over_seeds {axis}", figure, "over_seeds", **values)
        yield title, axis if len(figures) > 1 else "", part
    yield title, "", over_seeds.seeds_table(members)


def _predictions(members: Sequence[Member]) -> Iterator[Item]:
    """Yield effective context against its possible bounds."""
    over = describe_intervals(members)
    for task in tasks(members)[:1]:
        if predictors.group_trained_lengths(members, task):
            title, figure = "Trained length", predictors.draw_trained_lengths(members, task)
            yield title, "", _drawing("trained_length", figure, "trained_length", over=over)
            yield title, "", page_tables.trained_lengths(members, task)
    comparisons = predictors.compare(members)
    several = len({comparison.trained_length for comparison in comparisons}) > 1
    for comparison in comparisons:
        length = f", trained on {comparison.trained_length:,}" if several else ""
        name, figure = f"{comparison.task}{length}", predictors.draw_predictors(comparison)
        values = {"name": name, "reading": predictors.describe(comparison), "over": over}
        part = _drawing(f"predictors {name}", figure, "predictors", **values)
        yield "Predictions from the frequencies", name, part


def _heat_maps(members: Sequence[Member]) -> Iterator[Item]:
    by_depth = heat_maps.depth_tasks(members)
    for task in [*by_depth, *heat_maps.distance_tasks(members)]:
        captions = "places" if task in by_depth else "distances"
        figure = heat_maps.draw_lengths(members, task)
        part = _drawing(f"heat_map {task}", figure, captions, name=task)
        yield "By context length and depth or distance", task, part
    over = describe_intervals(members)
    for task, length in heat_maps.matrix_keys(members):
        name, figure = f"{task} at {length:,}", heat_maps.draw_matrix(members, task, length)
        cells = heat_maps.describe_matrix(members, task, length)
        part = _drawing(
            f"matrix {task} {length}", figure, "matrix", name=name, cells=cells, over=over
        )
        yield "Trained with, evaluated with", name, part
