"""Run directories -> the figures and one self-contained HTML page.

    python report.py DIR... [--out DIR/report.html]

DIR is a run or a sweep directory. Figures are written beside the page, as PNG and, for effective
context, SVG. What has not been measured yet is said on the page, with the command that does it.
"""

import argparse
import importlib.metadata
import io
import json
import platform
import re
import shlex
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from experiment.run import RunDirectory, find_runs, read_sweep
from reporting import curves, page
from reporting import members as members_lib
from reporting.effective_context import effective_context
from reporting.members import Member
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
    """Writes the page `out` and its figures beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = effective_context(members)
        figure.savefig(out.with_name("effective_context.svg"), metadata={"Date": None})
        caption = f"{MEASURED if members_lib.tasks(members) else NOT_MEASURED} {PREDICTED}"
        lead = _picture("effective_context", figure, out, _describe(members), caption)
        pictures = []
        if members_lib.tasks(members):
            alternative = "Accuracy against the distance to the answer, for every member and task."
            figure = curves.accuracy_by_distance(members)
            pictures.append(_picture("accuracy_by_distance", figure, out, alternative, ACCURACY))
        if any(member.losses for member in members):
            alternative = "Training loss in nats a token against tokens seen, for every member."
            pictures.append(_picture("loss", curves.loss(members), out, alternative, LOSS))
        if any(member.perplexity for member in members):
            alternative = "Perplexity of held-out text against position in the document."
            figure = curves.perplexity_by_position(members)
            pictures.append(
                _picture("perplexity_by_position", figure, out, alternative, PERPLEXITY)
            )
    text = page.build(
        members,
        effective_context=lead,
        pictures=pictures,
        missing=missing(members, dirs),
        commands=commands(dirs, members, out),
        provenance=provenance(members),
    )
    out.write_text(text, encoding="utf-8")


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
PERPLEXITY = (
    "Perplexity of held-out text by position in the document, with 95% intervals over documents. "
    "Men et al. (arXiv 2405.14591) found it nearly blind to the base where retrieval is not."
)


def _describe(members: Sequence[Member]) -> str:
    task = next(iter(members_lib.tasks(members)), None)
    said = [f"{m.label}: {m.estimates[task]}" for m in members if task and task in m.estimates]
    return f"Effective context against RoPE base. {'; '.join(said) or 'Nothing measured yet'}."


def _picture(name: str, figure: Figure, out: Path, alternative: str, caption: str) -> page.Picture:
    """Saves `figure` as PNG beside the page and returns it for the page, as inline SVG."""
    figure.savefig(out.with_name(f"{name}.png"))
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return page.Picture(
        svg=inline(buffer.getvalue(), name), alternative=alternative, caption=caption
    )


def inline(svg: str, name: str) -> str:
    """An SVG file as an element of a page: no prolog or metadata, ids of its own, scalable."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]+"', "", svg)
    svg = re.sub(r'\bid="(member-\d+)( [\w-]+)?"', r'class="\1\2"', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)


def missing(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """What is not there yet, each with the command that makes it."""
    train = " && ".join(_train_command(path, members) for path in dirs)
    evaluate = _command("evaluate.py", *dirs)
    untrained, unasked, no_loss, no_perplexity = [], [], [], []
    for member in members:
        trained = any(run.steps() for run in member.runs)
        if not member.estimates:
            (unasked if trained else untrained).append(member.label)
        elif not member.perplexity and members_lib.PERPLEXITY in member.config.evals.tasks:
            no_perplexity.append(member.label)
        if trained and not member.losses:
            no_loss.append(member.label)
    found = [
        (untrained, "No checkpoint yet", train),
        (no_loss, "No training metrics yet", train),
        (unasked, "Not evaluated yet", evaluate),
        (no_perplexity, "No perplexity yet", f"{evaluate} --tasks perplexity"),
    ]
    return [(f"{what}: {', '.join(who)}.", command) for who, what, command in found if who]


def commands(dirs: Sequence[Path], members: Sequence[Member], out: Path) -> list[str]:
    """Shell lines that train, evaluate and report again."""
    report = _command("report.py", *dirs)
    if out != dirs[0] / "report.html":
        report += f" --out {shlex.quote(str(out))}"
    train = [_train_command(path, members) for path in dirs]
    return [*train, _command("evaluate.py", *dirs), report]


def _command(program: str, *arguments: object) -> str:
    return shlex.join(["python", program, *map(str, arguments)])


def _train_command(path: Path, members: Sequence[Member]) -> str:
    for run in (run for member in members for run in member.runs):
        if run.path == path:
            record = json.loads((path / "config.json").read_text(encoding="utf-8"))
            return _command("train.py", run.config.name, "--workdir", path, *record["overrides"])
    sweep = read_sweep(path)
    return _command("sweep.py", sweep["config"], "--workdir", path, *sweep["overrides"])


def provenance(members: Sequence[Member]) -> list[str]:
    """What the members saw, and the versions that made this page."""
    states = [state for member in members for run in member.runs if (state := data_state(run))]
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
