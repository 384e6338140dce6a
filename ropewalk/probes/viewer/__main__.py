"""Writes an interactive page of attention weights: ropewalk view RUN [RUN ...]

The page is one self-contained HTML file with the weights of every head, by token and by distance.
Several runs, which must have the same tokenizer, are shown side by side. Without a text, the page
shows two: a key-value document as in training, and some code.
"""

import argparse
import inspect
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ropewalk.experiment.run import find_run
from ropewalk.probes.viewer import list_heads
from ropewalk.reporting.command import check_page
from ropewalk.utils.command_line import Parser, exit_with, tokens
from ropewalk.utils.paths import as_path

_MAX_COMPRESSION = 4  # of a page's arrays


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--text", help="text to show")
    source.add_argument("--file", type=Path, help="file with the text")
    text = "length of the text (default: all; without a text, the trained context or what fits)"
    add("--length", type=tokens, metavar="TOKENS", help=text)
    add("--layers", nargs="+", type=int, metavar="N", help="default: all")
    add("--heads", nargs="+", type=int, metavar="N", help="default: all")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    add("--max-size", type=float, default=5, metavar="MB", help="default 5")
    add("--out", type=Path, metavar="FILE.html", help="default: view.html in the first RUN")
    args = parser.parse_args(arguments)
    with parser.refusing(ValueError, OSError):
        write_page(args, _check(args), Console(stderr=True, markup=False))
    return 0


def _check(args: argparse.Namespace) -> Path:
    """Check the arguments without JAX, and return the path of the page.

    Raises:
      ValueError: for an argument that is wrong.
    """
    if not 0 < args.max_size <= 1000:
        raise ValueError(f"--max-size {args.max_size:g} must be above 0 and at most 1000 MB")
    for path in args.runs:
        run = find_run(path)
        run.find_step(args.step)
        list_heads(path, run.config.model, args.layers, args.heads)
    if args.file and not as_path(args.file).is_file():
        raise ValueError(f"--file {args.file}: no such file")
    return check_page(as_path(args.out or args.runs[0] / "view.html"))


def write_page(args: argparse.Namespace, out: Path, console: Console) -> None:
    """Capture the runs and write the page `out`."""
    # Imported after parsing, because --help needs neither JAX nor matplotlib.
    from ropewalk.experiment import load
    from ropewalk.probes.capturing import capture
    from ropewalk.probes.viewer.page import view
    from ropewalk.reporting.labels import labels

    runs = [load(path, args.step) for path in args.runs]
    for run in runs[1:]:
        if run.tokenizer != runs[0].tokenizer:
            raise ValueError(
                f"{runs[0].directory.path} and {run.directory.path} have different tokenizers: "
                "write a page for each"
            )
    names = [
        f"{name} (trained {steps})" if (steps := run.directory.unfinished) else name
        for name, run in zip(labels([run.config for run in runs]), runs, strict=True)
    ]
    console.print(f"capturing {', '.join(map(str, args.runs))}", highlight=False, soft_wrap=True)
    with console.status("capturing"):
        tokens_BT, titles = _texts(args, runs)
        # Before hours of work for a page that compression cannot make fit.
        num_texts, length = tokens_BT.shape
        if length > _fitting(args, runs, num_texts, _MAX_COMPRESSION):
            raise ValueError(
                f"a text of {length:,} tokens does not fit a page of {args.max_size:g} MB: show "
                f"--length {_fitting(args, runs, num_texts)}, fewer --layers or --heads, or raise "
                "--max-size"
            )
        captures = {
            # Runs may have equal labels.
            name if names.count(name) == 1 else str(path): capture(run, tokens_BT)
            for name, path, run in zip(names, args.runs, runs, strict=True)
        }
        page = view(
            captures,
            runs[0].tokenizer,
            layers=args.layers,
            heads=args.heads,
            titles=titles,
            max_size=args.max_size,
        )
    print(page.save(out))


def _texts(args: argparse.Namespace, runs: Sequence) -> tuple:
    """Return tokens `[B, T]`, and the titles of the rows."""
    import numpy as np

    from ropewalk.model import positions
    from ropewalk.probes.questions import capture_recall

    run, text = runs[0], args.text
    if args.file:
        text = as_path(args.file).read_text(encoding="utf-8", errors="replace")
    if text is not None:
        return run.as_tokens(text)[:, : args.length], ["text"]
    code_BT = run.as_tokens(inspect.getsource(positions))
    # The trained context, or what fits the maximal size.
    fitting = min(_fitting(args, runs, 2), *(r.config.data.context_length for r in runs))
    length = min(args.length or max(1, fitting), code_BT.shape[1])
    recall_BT = capture_recall(run, documents=1, length=length)[0].tokens_BT
    return np.concatenate([recall_BT, code_BT[:, :length]]), ["key-value recall", "code"]


def _fitting(args: argparse.Namespace, runs: Sequence, num_texts: int, factor: float = 1.0) -> int:
    """Return the longest texts whose arrays have `factor` times the maximal size, uncompressed."""
    models = [run.config.model for run in runs]
    num_heads = sum(len(list_heads("", m, args.layers, args.heads)) for m in models)
    # One byte per weight and per feature of a query or key; base64 has four for three.
    bytes_per_head = factor * args.max_size * 1e6 * 3 / 4 / (num_texts * num_heads)
    width = 2 * max(model.head_dim for model in models)
    return int(math.sqrt(width**2 + 2 * bytes_per_head) - width)


if __name__ == "__main__":
    exit_with(main)
