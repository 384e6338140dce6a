"""Write the page of run directories, with its figures and results.csv beside it."""

import importlib.metadata
import platform
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from evals.estimate.effective_context import UNDETERMINED
from experiment.items import read_items
from experiment.run import find_runs
from reporting import (
    commands,
    curves,
    heat_maps,
    inside,
    overview,
    page,
    predictors,
    results,
    superficial,
    tables,
)
from reporting import members as members_lib
from reporting.effective_context import draw_effective_context
from reporting.members import Member, describe_intervals, tasks
from reporting.page import Commands, Drawing, Folded, Item, Table, format_captions
from reporting.paths import check_page
from reporting.task_view import Evaluated, all_views
from utils.files import write_atomically
from utils.messages import printable
from utils.paths import as_path


def write(dirs: Sequence[Path], out: Path, command: str) -> list[str]:
    """Write the page `out`, its figures and results.csv; the page shows `command`.

    Returns:
      Notices about runs (copies, lost rows), one line each, which the page shows too.

    Raises:
      ValueError: if a directory is neither a run nor a sweep, or its results are damaged.
    """
    dirs, out = [as_path(path) for path in dirs], check_page(as_path(out))
    notices: list[str] = []
    members = members_lib.read(find_runs(dirs, notices.append), notices.append)
    page.write(
        out,
        _items(members, dirs, command),
        looks=[member.look for member in members],
        names=sorted({member.config.name for member in members}),
        facts=overview.facts(members),
        questions=list(dict.fromkeys(member.config.question for member in members)),
        summary=overview.summarize(members),
        missing=Commands(lines=commands.list_missing(members, dirs)),
        provenance=[*provenance(members), *(f"{notice}." for notice in notices)],
    )
    csv = results.to_csv(members)
    write_atomically(out.with_name("results.csv"), printable(csv))
    return notices


def _items(members: Sequence[Member], dirs: Sequence[Path], command: str) -> Iterator[Item]:
    """Yield the parts of the page in order."""
    yield "Effective context", "", _lead(members)
    table, more = tables.numbers(members)
    yield "Numbers", "", table
    summary = "More columns: dips, L85, ceiling, periods, other tasks"
    yield "Numbers", "", Folded(summary=summary, part=more)
    yield from measured_items(members)
    for part in overview.differences(members):
        yield "Differences between members", "", part
    lines = [("", "\n".join(commands.repeat(dirs, command)))]
    yield "Commands to reproduce", "", Commands(lines=lines)


def _lead(members: Sequence[Member]) -> Drawing:
    """Return the leading figure: effective context against base."""
    task = next(iter(members_lib.tasks(members)), "")
    estimates = {m.label: m.estimates[task] for m in members if task in m.estimates}
    texts = (f"{label}: {estimate}" for label, estimate in estimates.items())
    captions = format_captions(
        "effective_context",
        task=task,
        estimates="; ".join(texts) or "Nothing measured yet",
        beyond=any(estimate.is_beyond for estimate in estimates.values()),
        undetermined=any(estimate.verdict == UNDETERMINED for estimate in estimates.values()),
        without=not all(estimate.has_l50 for estimate in estimates.values()),
        dips=any(estimate.dips for estimate in estimates.values()),
        bounds=any(member.bounds.get(task) for member in members),
        over=describe_intervals(members),
        several=len({m.trained_length for m in members}) > 1,
    )
    return Drawing("effective_context", partial(draw_effective_context, members), captions)


def _drawing(name: str, draw: Callable[[], Figure], captions: str, /, **values) -> Drawing:
    """Return a drawing with the captions of this name in captions.toml."""
    return Drawing(name, draw, format_captions(captions, **values))


def measured_items(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the parts about measurements and training; parts without results are left out."""
    for task, table in tables.rules(members).items():
        yield "Effective context by other definitions", task, table
    if table := tables.seeds(members):
        yield "Over seeds", "", table
    yield from _predictions(members)
    if probed := inside.probed(members):
        title, captions = "Empirical B(m) of each head", inside.zeros_captions(probed)
        yield title, "", Drawing("inside", partial(inside.draw_zeros, probed), captions)
        yield title, "", inside.zeros_table(probed)
    if curves.accuracy_panels(members):
        draw, name = partial(curves.draw_accuracy_by_distance, members), "accuracy_by_distance"
        yield "Accuracy by distance", "", _drawing(name, draw, name, trials=curves.MIN_TRIALS)
    over = describe_intervals(members)
    for task in curves.by_length_tasks(members):
        draw = partial(curves.draw_by_length, members, task)
        part = _drawing(f"length {task}", draw, "length", name=task, over=over)
        yield "By context length", task, part
    yield from _heat_maps(members)
    yield from tables.other_tables(members)
    if superficial.superficial_lengths(members):
        draw = partial(superficial.draw_superficial, members)
        yield "Perplexity and context", "", _drawing("superficial", draw, "superficial")
    for plot, panels in curves.task_plots(members):
        captions = {"alternative": plot.alternative, "caption": plot.caption}
        yield (
            plot.section,
            "",
            Drawing(plot.name, partial(curves.draw, members, plot, panels), captions),
        )
    evaluated = [
        Evaluated(m.index, m.label, m.trained_length, x.task, x.length, x.variant, x.rows)
        for m in members
        for x in m.measurements
    ]
    for view in all_views().values():
        for section, name, caption, lines in view.tables(evaluated):
            yield section, name, Table.from_cells(lines, caption=caption)
    if any(member.losses for member in members):
        yield "Training loss", "", _drawing("loss", partial(curves.draw_loss, members), "loss")


def _predictions(members: Sequence[Member]) -> Iterator[Item]:
    """Yield effective context against its possible bounds."""
    over = describe_intervals(members)
    for task in tasks(members)[:1]:
        if predictors.group_trained_lengths(members, task):
            title, draw = "Trained length", partial(predictors.draw_trained_lengths, members, task)
            yield title, "", _drawing("trained_length", draw, "trained_length", over=over)
            yield title, "", tables.trained_lengths(members, task)
    comparisons = predictors.compare(members)
    several = len({comparison.trained_length for comparison in comparisons}) > 1
    for comparison in comparisons:
        length = f", context length {comparison.trained_length:,}" if several else ""
        name, draw = f"{comparison.task}{length}", partial(predictors.draw_predictors, comparison)
        values = {"name": name, "over": over} | predictors.describe(comparison)
        part = _drawing(f"predictors {name}", draw, "predictors", **values)
        yield "Predictions from the frequencies", name, part


def _heat_maps(members: Sequence[Member]) -> Iterator[Item]:
    for task in heat_maps.depth_tasks(members):
        draw = partial(heat_maps.draw_lengths, members, task)
        part = _drawing(f"heat_map {task}", draw, "places", name=task)
        yield "By context length and depth", task, part
    over = describe_intervals(members)
    for task, length in heat_maps.matrix_keys(members):
        name, draw = f"{task} at {length:,}", partial(heat_maps.draw_matrix, members, task, length)
        cells = heat_maps.describe_matrix(members, task, length)
        part = _drawing(
            f"matrix {task} {length}", draw, "matrix", name=name, cells=cells, over=over
        )
        yield "Trained with, evaluated with", name, part


def provenance(members: Sequence[Member]) -> list[str]:
    """Return sentences about the training data of members and the versions of this page."""
    runs = {run.path: run for member in members for run in member.runs}
    trained = [run for run in runs.values() if run.steps()]
    states = [(run, read_items(run, run.find_step())[0]["data"]) for run in trained]
    sentences = []
    if states:
        fingerprints = ", ".join(sorted({state["fingerprint"] for _, state in states}))
        streams = {(run.config.data.seed, state["rows"], state["digest"]) for run, state in states}
        digests = sorted({(rows, digest) for _, rows, digest in streams})
        subject = "Runs consumed different rows:"
        if len(digests) == 1:
            subject = "All runs consumed the same" if states[1:] else "The run consumed"
        elif len({seed for seed, *_ in streams}) == len(streams):
            subject = "Runs with equal data seeds consumed the same rows:"
        text = ", ".join(f"{rows:,} rows (digest {digest:016x})" for rows, digest in digests)
        sentences = [f"Data fingerprint {fingerprints}.", f"{subject} {text}."]
    project = Path(__file__).parent.parent / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    sentences.append(
        f"Page made by ropewalk {version}, Python {platform.python_version()}, "
        f"JAX {importlib.metadata.version('jax')}."
    )
    return sentences
