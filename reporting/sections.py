"""The page's sections in order: what was measured, as far as it was."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from reporting import curves, heat_maps, inside, over_seeds, page_tables, predictors, superficial
from reporting.labels import seeds_said
from reporting.members import Member, intervals_over, tasks
from reporting.page import Section, Table, words
from reporting.pictures import Drawing, save

# A heading; what the part is chosen by among others of its section, or nothing; the part.
Shown: TypeAlias = tuple[str, str, Drawing | Table]


def sections(members: Sequence[Member], page: Path) -> list[Section]:
    """Those that have something to show; their figures are saved beside `page`."""
    found: dict[str, Section] = {}
    for title, name, part in _shown(members):
        part = save(part, page, members) if isinstance(part, Drawing) else part
        section = found.setdefault(title, Section(title=title, parts=[], choices={}))
        if name:
            section.choices[name] = part
        else:
            section.parts.append(part)
    return list(found.values())


def _shown(members: Sequence[Member]) -> Iterator[Shown]:
    for task, table in page_tables.rules(members).items():
        yield "Effective context by other rules", task, table
    yield from _over_seeds(members)
    yield from _predicted(members)
    if found := inside.looked_into(members):
        yield "Seen from inside", "", Drawing("inside", inside.figure(found), inside.said(found))
        yield "Seen from inside", "", inside.table(found)
    if curves.accuracy_panels(members):
        figure = curves.accuracy_by_distance(members)
        said = words("accuracy_by_distance", trials=curves.MIN_TRIALS)
        yield "Accuracy by distance", "", Drawing("accuracy_by_distance", figure, said)
    for task in curves.by_length_tasks(members):
        figure = curves.by_length(members, task)
        said = words("length", name=task, over=intervals_over(members))
        yield "By context length", task, Drawing(f"length {task}", figure, said)
    yield from _heat_maps(members)
    if table := page_tables.scores(members):
        yield "Answers from a whole context", "", table
    for task, table in page_tables.texts(members).items():
        yield "Perplexity in numbers", task, table
    if superficial.superficial_lengths(members):
        figure = superficial.superficial(members)
        yield "Perplexity and context", "", Drawing("superficial", figure, words("superficial"))
    yield from _declared(members)
    if any(member.losses for member in members):
        yield "Training loss", "", Drawing("loss", curves.loss(members), words("loss"))


def _over_seeds(members: Sequence[Member]) -> Iterator[Shown]:
    """Seed by seed, where there are several, along each field in which members differ."""
    if not over_seeds.measures(members):
        return
    title = "Over seeds"
    said = seeds_said([run.config for member in members for run in member.runs])
    drawn = over_seeds.figures(members)
    for axis, figure in drawn.items():
        text = words("over_seeds", seeds=said, axis=axis or "the only setting")
        yield title, axis if len(drawn) > 1 else "", Drawing(f"over_seeds {axis}", figure, text)
    yield title, "", over_seeds.table(members)


def _predicted(members: Sequence[Member]) -> Iterator[Shown]:
    """Effective context against what could bound it."""
    for task in tasks(members)[:1]:
        if predictors.by_trained_length(members, task):
            title, figure = "Against the trained length", predictors.against_trained_length
            said = words("trained_length", over=intervals_over(members))
            yield title, "", Drawing("trained_length", figure(members, task), said)
            yield title, "", page_tables.trained_lengths(members, task)
    compared = predictors.comparisons(members)
    several = len({each.trained_length for each in compared}) > 1
    for each in compared:
        name = each.task + (f", trained on {each.trained_length:,}" if several else "")
        over = intervals_over(members)
        said = words("predictors", name=name, reading=predictors.reading(each), over=over)
        figure = predictors.against_predictors(each)
        part = Drawing(f"predictors {name}", figure, said)
        yield "Against what the frequencies predict", name, part


def _heat_maps(members: Sequence[Member]) -> Iterator[Shown]:
    title = "By context length and place"
    by_place = heat_maps.place_tasks(members)
    for task in [*by_place, *heat_maps.distance_tasks(members)]:
        said = words("places" if task in by_place else "distances", name=task)
        yield title, task, Drawing(f"heat_map {task}", heat_maps.places(members, task), said)
    for task, length in heat_maps.matrix_keys(members):
        name, figure = f"{task} at {length:,}", heat_maps.matrix(members, task, length)
        found, over = heat_maps.said(members, task, length), intervals_over(members)
        said = words("matrix", name=name, said=found, over=over)
        drawing = Drawing(f"matrix {task} {length}", figure, said)
        yield "Trained with, evaluated with", name, drawing


def _declared(members: Sequence[Member]) -> Iterator[Shown]:
    """What tasks declare to be shown besides."""
    for plot, panels in curves.declared(members):
        figure = curves.draw(members, plot, panels)
        said = {"alternative": plot.alternative, "caption": plot.caption}
        yield plot.section, "", Drawing(plot.name, figure, said)
    for section, tables in page_tables.shares(members).items():
        for name, table in tables.items():
            yield section, name, table
