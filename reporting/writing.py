"""Write the page of run directories, with its figures and results.csv beside it."""

import importlib.metadata
import platform
import tomllib
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from experiment.items import data_state
from experiment.run import find_runs
from reporting import commands, overview, results
from reporting import members as members_lib
from reporting.effective_context import draw_effective_context
from reporting.looks import STYLE
from reporting.members import Member
from reporting.page import Commands, Folded, Section, format_captions, render
from reporting.pictures import Drawing, save
from reporting.sections import make_sections
from utils.files import check_writable
from utils.paths import as_path


def write(dirs: Sequence[Path], out: Path, command: str) -> list[str]:
    """Write the page `out`, its figures and results.csv; the page shows `command`.

    Returns:
      Notices about runs (copies, lost rows), one line each, which the page shows too.

    Raises:
      ValueError: if a directory is neither a run nor a sweep, or its results are damaged.
    """
    dirs, out = [as_path(path) for path in dirs], as_path(out)
    runs = find_runs(dirs)
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; write --out {out / 'report.html'}")
    check_writable(out.parent, "put the page elsewhere: --out FILE.html")
    notices: list[str] = []
    members = members_lib.read(runs, notices.append)
    matplotlib.use("Agg")  # needs no display
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        lead = save(_lead(members), out, members)
        measured = make_sections(members, out)
    opening, findings = overview.findings(members)
    suggested = commands.suggest(members, dirs)
    more = Folded(summary=f"{len(suggested)} commands", part=Commands(lines=suggested))
    repeat = "\n".join(commands.repeat(dirs, command))
    page = render(
        names=sorted({member.config.name for member in members}),
        facts=overview.facts(members),
        questions=list(dict.fromkeys(member.config.question for member in members)),
        opening=opening,
        findings=findings,
        lead=lead,
        missing=Commands(lines=commands.list_missing(members, dirs)),
        sections=[
            Section(title="Numbers", parts=[overview.numbers_table(members)]),
            *measured,
            *([Section(title="Further measurements", parts=[more])] if suggested else []),
            Section(title="Differences between members", parts=overview.differences(members)),
            Section(title="Commands to reproduce", parts=[Commands(lines=[("", repeat)])]),
        ],
        provenance=[*provenance(members), *(f"{notice}." for notice in notices)],
        looks=[member.look for member in members],
    )
    options = {"encoding": "utf-8", "errors": "replace"}
    out.with_name("results.csv").write_text(results.to_csv(members), **options)
    out.write_text(page, **options)
    return notices


def _lead(members: Sequence[Member]) -> Drawing:
    """Return the leading figure: effective context against base."""
    task = next(iter(members_lib.tasks(members)), None)
    estimates = [f"{m.label}: {m.estimates[task]}" for m in members if task and task in m.estimates]
    over = members_lib.describe_intervals(members)
    parts = format_captions("effective_context_parts", over=over)
    captions = format_captions(
        "effective_context",
        estimates="; ".join(estimates) or "Nothing measured yet",
        measured=parts["measured" if task else "not_measured"],
        several=parts["several"] if len({m.trained_length for m in members}) > 1 else "",
    )
    return Drawing("effective_context", draw_effective_context(members), captions)


def provenance(members: Sequence[Member]) -> list[str]:
    """Return sentences about the training data of members and the versions of this page."""
    runs = {run.path: run for member in members for run in member.runs}
    trained = [run for run in runs.values() if run.steps()]
    states = [(run, data_state(run, run.find_step())) for run in trained]
    sentences = []
    if states:
        fingerprints = sorted({state["fingerprint"] for _, state in states})
        sentences.append(f"Data fingerprint {', '.join(fingerprints)}.")
        streams = {(run.config.data.seed, state["rows"], state["digest"]) for run, state in states}
        digests = sorted({(rows, digest) for _, rows, digest in streams})
        if len(digests) == 1:
            (rows, digest), *_ = digests
            subject = "The run consumed" if len(states) == 1 else "All runs consumed the same"
            sentences.append(f"{subject} {rows:,} rows (digest {digest:016x}).")
        else:
            one_per_seed = len({seed for seed, *_ in streams}) == len(streams)
            subject = (
                "Runs with equal data seeds consumed the same"
                if one_per_seed
                else ("Runs consumed different")
            )
            text = ", ".join(f"{digest:016x} after {rows:,} rows" for rows, digest in digests)
            sentences.append(f"{subject} rows: digests {text}.")
    project = Path(__file__).parent.parent / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    sentences.append(
        f"Page made by ropewalk {version}, Python {platform.python_version()}, "
        f"JAX {importlib.metadata.version('jax')}."
    )
    return sentences
