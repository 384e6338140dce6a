"""Run directories -> the figures and one self-contained HTML page.

    python report.py DIR... [--out DIR/report.html]

DIR is a run or a sweep directory. Figures are written beside the page, as PNG and SVG, and the
numbers to results.csv (its columns: reporting/results.py). What has not been measured yet is said
on the page, with the command that does it. Sweeps of the same bases at several trained lengths,
given together, show effective context against trained length.
"""

import argparse
import dataclasses
import html
import importlib.metadata
import io
import json
import platform
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from experiment.run import RunDirectory, find_runs
from reporting import (
    commands,
    curves,
    heat_maps,
    page,
    page_tables,
    predictors,
    results,
    superficial,
)
from reporting import members as members_lib
from reporting.effective_context import effective_context
from reporting.members import Member
from reporting.page import Section
from reporting.style import STYLE

matplotlib.use("Agg")  # a page needs no display


def main() -> None:
    """Parses the command line and writes the page."""
    parser = _Parser(
        prog="report.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="run or sweep directory")
    parser.add_argument("--out", type=Path, help="the page (default: report.html in the first DIR)")
    args = parser.parse_args()
    out = args.out or args.dirs[0] / "report.html"
    try:
        if out.is_dir():
            raise ValueError(f"--out {out} is a folder; write --out {out / 'report.html'}")
        members = members_lib.read(find_runs(args.dirs))
        write(members, args.dirs, out)
    except (ValueError, OSError) as error:
        parser.error(str(error).replace("\n", " "))
    print(out)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line: the reason. `--help` teaches the rest."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def write(members: Sequence[Member], dirs: Sequence[Path], out: Path) -> None:
    """Writes the page `out`, and its figures and results.csv beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        caption = f"{MEASURED if members_lib.tasks(members) else NOT_MEASURED} {PREDICTED}"
        if len({member.trained_length for member in members}) > 1:
            caption += " Marks side by side: one base, trained at rising lengths."
        lead = _Pictures(out).picture(
            "effective_context", effective_context(members), _describe(members), caption
        )
        found = sections(members, _Pictures(out))
    whole = page.build(
        members,
        effective_context=lead,
        sections=found,
        missing=commands.missing(members, dirs),
        further=commands.further(members, dirs),
        commands=commands.repeat(members, dirs, out),
        provenance=provenance(members),
    )
    out.with_name("results.csv").write_text(results.to_csv(members), encoding="utf-8")
    out.write_text(whole, encoding="utf-8")


def sections(members: Sequence[Member], pictures: "_Pictures") -> list[Section]:
    """What was measured, as far as it was: a figure without rows is not drawn."""
    draw = pictures.picture
    found = []
    if tables := page_tables.rules(members):
        found.append(Section(title="Effective context by other rules", choices=tables))
    if task := next(iter(members_lib.tasks(members)), None):
        if predictors.by_trained_length(members, task):
            figure = predictors.against_trained_length(members, task)
            alternative = "Effective context against trained length, a line for every base."
            parts = [
                draw("trained_length", figure, alternative, TRAINED_LENGTH),
                page_tables.trained_lengths(members, task),
            ]
            found.append(Section(title="Against the trained length", parts=parts))
        compared = predictors.comparisons(members)
        several = len({each.trained_length for each in compared}) > 1
        choices = {}
        for each in compared:
            name = each.task + (f", trained on {each.trained_length:,}" if several else "")
            choices[name] = draw(
                f"predictors {name}",
                predictors.against_predictors(each, members),
                f"Effective context on {name} against lengths that the frequencies predict.",
                f"{html.escape(predictors.reading(each))} {PREDICTORS}",
            )
        if choices:
            found.append(Section(title="Against what the frequencies predict", choices=choices))
    if curves.accuracy_panels(members):
        figure = curves.accuracy_by_distance(members)
        alternative = "Accuracy against the distance to the answer, for every member and task."
        parts = [draw("accuracy_by_distance", figure, alternative, ACCURACY)]
        found.append(Section(title="Accuracy by distance", parts=parts))

    choices = {
        task: draw(
            f"length {task}",
            curves.by_length(members, task),
            f"{task} against evaluated context length, for every member.",
            BY_LENGTH,
        )
        for task in curves.by_length_tasks(members)
    }
    if choices:
        found.append(Section(title="By context length", choices=choices))

    choices = {}
    for task in heat_maps.place_tasks(members):
        alternative = f"{task}: right answers by context length and place, for every member."
        figure = heat_maps.places(members, task)
        choices[task] = draw(f"heat_map {task}", figure, alternative, PLACES)
    for task in heat_maps.distance_tasks(members):
        alternative = f"{task}: accuracy by context length and distance, for every member."
        figure = heat_maps.distances(members, task)
        choices[task] = draw(f"heat_map {task}", figure, alternative, DISTANCES)
    if choices:
        found.append(Section(title="By context length and place", choices=choices))

    choices = {
        f"{task} at {length:,}": draw(
            f"matrix {task} {length}",
            heat_maps.matrix(members, task, length),
            f"{task} at {length:,} tokens, by schedule trained with and evaluated with: "
            + heat_maps.said(members, task, length),
            MATRIX,
        )
        for task, length in heat_maps.matrix_keys(members)
    }
    if choices:
        found.append(Section(title="Trained with, evaluated with", choices=choices))

    if table := page_tables.scores(members):
        found.append(Section(title="Answers from a whole context", parts=[table]))
    if tables := page_tables.texts(members):
        found.append(Section(title="Perplexity in numbers", choices=tables))
    own: dict[str, list[page.Picture | page.Table]] = {}
    if superficial.superficial_lengths(members):
        alternative = "Perplexity relative to the best member, and retrieval, against RoPE base."
        figure = superficial.superficial(members)
        own["Perplexity and context"] = [draw("superficial", figure, alternative, SUPERFICIAL)]
    for plot, panels in curves.declared(members):
        figure = curves.draw(members, plot, panels)
        picture = draw(plot.name, figure, plot.alternative, plot.caption)
        own.setdefault(plot.section, []).append(picture)
    found += [Section(title=title, parts=parts) for title, parts in own.items()]
    for title, tables in page_tables.shares(members).items():
        found.append(Section(title=title, choices=tables))
    if any(member.losses for member in members):
        alternative = "Training loss in nats per token against tokens seen, for every member."
        parts = [draw("loss", curves.loss(members), alternative, LOSS)]
        found.append(Section(title="Training loss", parts=parts))
    return found


MEASURED = (
    "How far each model sees, against the base it was trained with. Marks: the distance at which "
    "accuracy falls half-way from its ceiling to chance, with 95% intervals; an arrow where it had "
    "not fallen at the longest distance asked, a hollow mark where the task was not learned."
)
NOT_MEASURED = "No effective context has been measured yet."
PREDICTED = (
    "Lines and bars: what the frequencies alone predict, before any training. Shaded: beyond the "
    "trained length."
)
ACCURACY = (
    "Accuracy against the distance between a question and the tokens that answer it, by half "
    f"octaves of at least {curves.MIN_TRIALS} questions, with Wilson's 95% intervals. A diamond "
    "marks effective context, half-way from ceiling to chance. Accuracy may revive where the "
    "slowest pair has turned full circle."
)
LOSS = "Training loss on all rows, text and retrieval, averaged over neighbouring records."
TRAINED_LENGTH = (
    "Does a small base bound what a model learns to see? Then its line is flat where the diagonal "
    "rises on. Bars: 95% intervals; an arrow where accuracy had not fallen at the longest distance "
    "asked. Lines are drawn side by side at each trained length."
)
PREDICTORS = (
    "Bars: 95% intervals over documents and seeds; arrows: censored, which the regression takes "
    "into account. Its points are single runs, weighed with seeds and bases as random effects; the "
    "intercept is log<sub>2</sub> tokens where the predictor is 1. A base left out: what the line "
    "fitted without a base misses it by, root mean square."
)
BY_LENGTH = (
    "The same members in shorter and longer contexts than they were trained on. Retrieval: mean "
    "over distances up to the context length, so a model that sees a fixed distance falls as "
    "1/length; effective context with 95% intervals, which does not fall for that reason alone."
)
PLACES = (
    "Share of exact answers by place in the context; point at a cell for its number. A black line: "
    "beyond the trained length. Grey: not asked, because no question could stand there."
)
DISTANCES = (
    "Share of exact answers by half octaves of distance; point at a cell for its number. A black "
    "line with a white edge: effective context. An upright one: beyond the trained length. Grey: "
    "not asked."
)
MATRIX = (
    "Rows: the schedule a model was trained with; columns: the one it was evaluated with, its "
    "other parameters those of training. Brighter is better. Small: 95% intervals; &gt;: not "
    "fallen at the longest distance asked. Grey: not evaluated."
)
SUPERFICIAL = (
    "Perplexity over that of the best member (above) and retrieval accuracy (below) against base: "
    "a context is superficial where the first stays flat while the second falls (Men et al., "
    "arXiv 2405.14591, Figures 3 and 6)."
)


def _describe(members: Sequence[Member]) -> str:
    task = next(iter(members_lib.tasks(members)), None)
    said = [f"{m.label}: {m.estimates[task]}" for m in members if task and task in m.estimates]
    return f"Effective context against RoPE base. {'; '.join(said) or 'Nothing measured yet'}."


@dataclasses.dataclass(frozen=True)
class _Pictures:
    """Where figures go: beside the page `out`, and into it."""

    out: Path

    def picture(self, name: str, figure: Figure, alternative: str, caption: str) -> page.Picture:
        """Saves `figure` as PNG and SVG and returns it for the page, as inline SVG."""
        name = "_".join(re.findall(r"\w+", name))
        figure.savefig(self.out.with_name(f"{name}.png"))
        figure.set_layout_engine("none")  # it is laid out by now
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        svg = hints(buffer.getvalue())
        self.out.with_name(f"{name}.svg").write_text(svg, encoding="utf-8")
        return page.Picture(svg=inline(svg, name), alternative=alternative, caption=caption)


def hints(svg: str) -> str:
    """`reporting.style.hint` made visible: a title inside its element, which browsers show."""
    return re.sub(r'<g id="([\w-]+) title:([^"]*)">', r'<g class="\1"><title>\2</title>', svg)


def inline(svg: str, name: str) -> str:
    """An SVG file as an element of a page: no prolog or metadata, ids of its own, scalable."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]+"', "", svg)
    svg = re.sub(r'\bid="(member-\d+)( [\w-]+)?"', r'class="\1\2"', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)


def provenance(members: Sequence[Member]) -> list[str]:
    """What the members saw, and the versions that made this page."""
    runs = {run.path: run for member in members for run in member.runs}
    states = [state for run in runs.values() if (state := data_state(run))]
    sentences = []
    if states:
        prints = sorted({state["fingerprint"] for state in states})
        sentences.append(f"Data fingerprint {', '.join(prints)}.")
        digests = sorted({(state["rows"], state["digest"]) for state in states})
        if len(digests) == 1:
            (rows, digest), *_ = digests
            who = "The run consumed" if len(states) == 1 else "All runs consumed the same"
            sentences.append(f"{who} {rows:,} rows (digest {digest:016x}).")
        else:
            seen = ", ".join(f"{digest:016x} after {rows:,} rows" for rows, digest in digests)
            sentences.append(f"Runs consumed different rows: digests {seen}.")
    project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))
    sentences.append(
        f"Page made by ropewalk {project['project']['version']}, Python "
        f"{platform.python_version()}, JAX {importlib.metadata.version('jax')}."
    )
    return sentences


def data_state(run: RunDirectory) -> dict | None:
    """The data state in the run's last checkpoint: JSON, so that no array is read for it."""
    steps = run.steps()
    path = run.checkpoints_path / str(steps[-1] if steps else 0) / "data" / "metadata"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
