"""Parts of the page about all members: summary, configuration differences, training data."""

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markupsafe import Markup

from ropewalk.experiment.dotted import flatten_values
from ropewalk.experiment.items import read_items
from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting.labels import describe_seeds
from ropewalk.reporting.members import Member, tasks
from ropewalk.reporting.page import Folded, Item, Table
from ropewalk.utils.messages import counted
from ropewalk.utils.version import __version__


def describe(members: Sequence[Member], notices: Iterable[str] = ()) -> dict[str, Any]:
    """Return the variables of every page of members (templates/page.html).

    They are strokes, names and questions; summary; facts: the numbers of members and seeds, and the
    trained lengths; and provenance: sentences about training data, the notices, and versions.
    """
    lengths = sorted({member.trained_length for member in members})
    runs = {run.path: run for member in members for run in member.runs}
    return {
        "strokes": [member.stroke for member in members],
        "names": sorted({member.config.name for member in members}),
        "questions": list(dict.fromkeys(member.config.question for member in members)),
        "summary": _summarize(members),
        "facts": [
            f"{len(members):,} member{'s' * (len(members) > 1)}",
            describe_seeds([run.config for run in runs.values()]),
            f"context length {', '.join(f'{length:,}' for length in lengths)}",
        ],
        "provenance": [
            *_describe_data([run for run in runs.values() if run.steps()]),
            f"Page made by ropewalk {__version__}, Python {platform.python_version()}, "
            f"JAX {importlib.metadata.version('jax')}.",
            *(f"{notice}." for notice in notices),
        ],
    }


def _describe_data(trained: Sequence[RunDirectory]) -> list[str]:
    """Return sentences about the rows that runs consumed."""
    if not trained:
        return []
    states = [(run, read_items(run, run.find_step())[0]["data"]) for run in trained]
    fingerprints = ", ".join(sorted({state["fingerprint"] for _, state in states}))
    streams = {(run.config.data.seed, state["rows"], state["digest"]) for run, state in states}
    digests = sorted({(rows, digest) for _, rows, digest in streams})
    subject = "Runs consumed different rows:"
    if len(digests) == 1:
        subject = "All runs consumed the same" if states[1:] else "The run consumed"
    elif len({seed for seed, *_ in streams}) == len(streams):
        subject = "Runs with equal data seeds consumed the same rows:"
    text = ", ".join(f"{counted(rows, 'rows')} (digest {digest:016x})" for rows, digest in digests)
    return [f"Data fingerprint {fingerprints}.", f"{subject} {text}."]


def _summarize(members: Sequence[Member]) -> Markup:
    """Return the effective context of the smallest and the largest base, as markup."""
    task = next(iter(tasks(members)), "")
    measured = [member for member in members if task in member.estimates]
    if not measured:
        return Markup("No retrieval task has been evaluated, so there is no effective context.")
    based = [member for member in measured if member.base is not None] or measured
    finding = Markup("<strong>{}</strong>: {}, mean accuracy {:.2f}")
    findings = [
        finding.format(member.label, estimate, estimate.mean_accuracy)
        for member in dict.fromkeys([based[0], based[-1]])
        for estimate in [member.estimates[task]]
    ]
    return Markup("Effective context on {}, in tokens: {}.").format(
        task, Markup("; ").join(findings)
    )


def differences(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the configuration fields that differ, by member, and the shared fields, collapsed."""
    settings = [flatten_values(member.config) for member in members]
    fields = list(dict.fromkeys(field for setting in settings for field in setting))
    different = [f for f in fields if len({setting.get(f) for setting in settings}) > 1]
    shared = [
        (None, {"field": field, "value": settings[0][field]})
        for field in fields
        if field not in different
    ]
    lines = [
        (member.index, {"member": member.label, **{f: setting.get(f, "") for f in different}})
        for member, setting in zip(members, settings, strict=True)
    ]
    caption = "" if different else "No differences: there is one member."
    table = Table.from_cells(lines if different else [], caption=caption, wraps=True)
    summary = f"Configuration shared by all members ({len(shared)} fields)"
    for part in (table, Folded(summary=summary, part=Table.from_cells(shared, wraps=True))):
        yield "Differences between members", "", part
