"""Write the page of run directories, with its figures and results.csv beside it."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from ropewalk.experiment.items import read_items
from ropewalk.experiment.run import find_runs
from ropewalk.reporting import (
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
from ropewalk.reporting import members as members_lib
from ropewalk.reporting.effective_context import draw_effective_context
from ropewalk.reporting.members import Member, describe_intervals, tasks
from ropewalk.reporting.page import Commands, Drawing, Folded, Item, Table, format_captions
from ropewalk.reporting.paths import check_page
from ropewalk.reporting.task_view import all_views
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import printable
from ropewalk.utils.paths import as_path
from ropewalk.utils.version import __version__


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
        provenance=[*provenance(members), *(f"{notice}." for notice in notices)],
    )
    csv = results.to_csv(members)
    write_atomically(out.with_name("results.csv"), printable(csv))
    return notices


def _items(members: Sequence[Member], dirs: Sequence[Path], command: str) -> Iterator[Item]:
    """Yield the parts of the page in order; parts without results are left out."""
    task, over = next(iter(tasks(members)), ""), describe_intervals(members)
    estimates = {m.label: m.estimates[task] for m in members if task in m.estimates}
    texts = "; ".join(f"{label}: {estimate}" for label, estimate in estimates.items())
    numbers, more = tables.numbers(members)
    if estimates:
        draw = partial(draw_effective_context, members)
        yield _figure("Effective context", "effective_context", draw, estimates=texts, over=over)
        yield "Numbers", "", numbers
        summary = "More columns: dips, L85, ceiling, periods, published definitions, other tasks"
        yield "Numbers", "", Folded(summary=summary, part=more)
    if table := tables.seeds(members):
        yield "Over seeds", "", table
    if curves.group_trained_lengths(members, task):
        draw = partial(curves.draw_trained_lengths, members, task)
        yield _figure("Trained length", "trained_length", draw, over=over)
    for name, table in predictors.comparison_tables(members):
        yield "Predictions from the frequencies", name, table
    if table := inside.zeros_table(members):
        yield "Empirical B(m) of each head", "", table
    yield from _curves(members, over)
    for name, table in tables.variant_tables(members):
        yield "Trained with, evaluated with", name, table
    yield from tables.other_tables(members)
    for view in all_views().values():
        for section, name, caption, lines in view.tables(members):
            yield section, name, Table.from_cells(lines, caption=caption)
    if any(member.losses for member in members):
        yield _figure("Training loss", "loss", partial(curves.draw_loss, members))
    if not estimates:
        yield (
            "Lengths by theory",
            "",
            Folded(summary="Effective context: not evaluated", part=numbers),
        )
    for part in overview.differences(members):
        yield "Differences between members", "", part
    lines = [("", "\n".join(commands.repeat(dirs, command)))]
    yield "Commands to reproduce", "", Commands(lines=lines)


def _figure(
    title: str, captions: str, draw: Callable[[], Figure], task: str = "", **values
) -> Item:
    """Return a figure with its captions in captions.toml; one of several has a task's name."""
    texts = format_captions(captions, **values, **({"name": task} if task else {}))
    return title, task, Drawing(f"{captions} {task}", draw, texts)


def _curves(members: Sequence[Member], over: str) -> Iterator[Item]:
    """Yield the figures of accuracy, perplexity and the plots that tasks declare."""
    if panels := curves.accuracy_panels(members):
        draw, trials = partial(curves.draw, members, curves.ACCURACY, panels), curves.MIN_TRIALS
        yield _figure("Accuracy by distance", curves.ACCURACY.name, draw, trials=trials)
    for task in curves.by_length_tasks(members):
        draw = partial(curves.draw_by_length, members, task)
        yield _figure("By context length", "length", draw, task, over=over)
    for task in heat_maps.depth_tasks(members):
        draw = partial(heat_maps.draw_lengths, members, task)
        yield _figure("By context length and depth", "heat_map", draw, task)
    if superficial.superficial_lengths(members):
        draw = partial(superficial.draw_superficial, members)
        yield _figure("Perplexity and context", "superficial", draw)
    for plot, panels in curves.task_plots(members):
        captions = {"alternative": plot.alternative, "caption": plot.caption}
        draw = partial(curves.draw, members, plot, panels)
        yield plot.section, "", Drawing(plot.name, draw, captions)


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
    sentences.append(
        f"Page made by ropewalk {__version__}, Python {platform.python_version()}, "
        f"JAX {importlib.metadata.version('jax')}."
    )
    return sentences
