"""Run directories -> the page, and beside it its figures and results.csv."""

import importlib.metadata
import platform
import tomllib
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from data.files import check_writable
from experiment.items import data_state
from experiment.run import find_runs
from reporting import commands, overview, results
from reporting import members as members_lib
from reporting.effective_context import effective_context
from reporting.looks import STYLE
from reporting.members import Member
from reporting.page import Commands, Folded, Section, render, words
from reporting.pictures import Drawing, save
from reporting.sections import sections
from settings.places import place


def write(dirs: Sequence[Path], out: Path, command: str) -> list[str]:
    """Writes the page `out`, and its figures and results.csv beside it; `command` is what does it.

    Returns:
      What is to be known of the runs, a line each: copies, lost rows. The page says it, too.

    Raises:
      ValueError: if a directory is neither a run nor a sweep, or its results are not readable.
    """
    dirs, out = [place(path) for path in dirs], place(out)
    runs = find_runs(dirs)
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; write --out {out / 'report.html'}")
    check_writable(out.parent, "put the page elsewhere: --out FILE.html")
    notices: list[str] = []
    members = members_lib.read(runs, notices.append)
    matplotlib.use("Agg")  # a page needs no display
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        lead = save(_lead(members), out, members)
        measured = sections(members, out)
    opening, findings = overview.findings(members)
    further = commands.further(members, dirs)
    more = Folded(summary=f"{len(further)} commands", part=Commands(lines=further))
    repeat = "\n".join(commands.repeat(dirs, command))
    page = render(
        names=sorted({member.config.name for member in members}),
        facts=overview.facts(members),
        questions=list(dict.fromkeys(member.config.question for member in members)),
        opening=opening,
        findings=findings,
        lead=lead,
        missing=Commands(lines=commands.missing(members, dirs)),
        sections=[
            Section(title="The numbers", parts=[overview.numbers(members)]),
            *measured,
            *([Section(title="What else can be measured here", parts=[more])] if further else []),
            Section(title="What differs between members", parts=overview.differences(members)),
            Section(title="How to repeat it", parts=[Commands(lines=[("", repeat)])]),
        ],
        provenance=[*provenance(members), *(f"{notice}." for notice in notices)],
        looks=[member.look for member in members],
    )
    out.with_name("results.csv").write_text(
        results.to_csv(members), encoding="utf-8", errors="replace"
    )
    out.write_text(page, encoding="utf-8", errors="replace")
    return notices


def _lead(members: Sequence[Member]) -> Drawing:
    """The leading figure: effective context against base."""
    task = next(iter(members_lib.tasks(members)), None)
    found = [f"{m.label}: {m.estimates[task]}" for m in members if task and task in m.estimates]
    said = words("effective_context_said", over=members_lib.intervals_over(members))
    said = words(
        "effective_context",
        found="; ".join(found) or "Nothing measured yet",
        measured=said["measured" if task else "not_measured"],
        several=said["several"] if len({m.trained_length for m in members}) > 1 else "",
    )
    return Drawing("effective_context", effective_context(members), said)


def provenance(members: Sequence[Member]) -> list[str]:
    """What the members saw, and the versions that made this page."""
    runs = {run.path: run for member in members for run in member.runs}
    trained = [run for run in runs.values() if run.steps()]
    states = [(run, data_state(run, run.find_step())) for run in trained]
    sentences = []
    if states:
        prints = sorted({state["fingerprint"] for _, state in states})
        sentences.append(f"Data fingerprint {', '.join(prints)}.")
        found = {(run.config.data.seed, state["rows"], state["digest"]) for run, state in states}
        digests = sorted({(rows, digest) for _, rows, digest in found})
        if len(digests) == 1:
            (rows, digest), *_ = digests
            who = "The run consumed" if len(states) == 1 else "All runs consumed the same"
            sentences.append(f"{who} {rows:,} rows (digest {digest:016x}).")
        else:
            one_each = len({seed for seed, *_ in found}) == len(found)
            who = (
                "Runs of one data seed consumed the same" if one_each else "Runs consumed different"
            )
            seen = ", ".join(f"{digest:016x} after {rows:,} rows" for rows, digest in digests)
            sentences.append(f"{who} rows: digests {seen}.")
    project = Path(__file__).parent.parent / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    sentences.append(
        f"Page made by ropewalk {version}, Python {platform.python_version()}, "
        f"JAX {importlib.metadata.version('jax')}."
    )
    return sentences
