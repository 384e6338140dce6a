"""Attention as a page to look at: python -m probes.viewer RUN [RUN ...]

Writes one HTML file that needs nothing else: of every head what each token looks at, and by how
much at which distance. Of several runs, which must have one tokenizer, side by side. Without a text
two are shown: a key-value document as in training, and a bit of code.
"""

import argparse
import inspect
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from settings.commands import Parser, tokens
from settings.places import place


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = Parser(
        prog="python -m probes.viewer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--text", help="to look at")
    given.add_argument("--file", type=Path, help="of the text")
    parser.add_argument(
        "--length",
        type=tokens,
        metavar="TOKENS",
        help="of the text (default: all; without a text as trained, or what fits --max-size)",
    )
    parser.add_argument("--layers", nargs="+", type=int, metavar="N", help="default: all")
    parser.add_argument("--heads", nargs="+", type=int, metavar="N", help="default: all")
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    parser.add_argument("--max-size", type=float, default=5, metavar="MB", help="default 5")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="default: view.html in the first RUN"
    )
    args = parser.parse_args(arguments)
    try:
        look(args, Console(stderr=True))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def look(args: argparse.Namespace, console: Console) -> None:
    """Captures what the command line names and writes the page."""
    # After parsing: --help needs none of JAX and matplotlib.
    from data.files import check_writable
    from experiment import load
    from probes.inside import capture
    from probes.viewer import view
    from reporting.labels import labels

    out = place(args.out) if args.out else place(args.runs[0]) / "view.html"
    check_writable(out.parent, "put the page elsewhere: --out FILE.html")
    runs = [load(path, args.step) for path in args.runs]
    for run in runs[1:]:
        if run.tokenizer != runs[0].tokenizer:
            raise ValueError(
                f"{runs[0].directory.path} and {run.directory.path} have different tokenizers: "
                "side by side they need one"
            )
    names = labels([run.config for run in runs])
    with console.status("looking inside"):
        tokens_BT, titles = _texts(args, runs)
        captures = {
            # Runs may be alike in all that labels tell.
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
    """Tokens `[B, T]`, and what the rows are called."""
    import numpy as np

    from model import positions
    from probes.questions import ask

    run, text = runs[0], args.text
    if args.file:
        text = place(args.file).read_text(encoding="utf-8", errors="replace")
    if text is not None:
        return run.as_tokens(text)[:, : args.length], ["text"]
    code_BT = run.as_tokens(inspect.getsource(positions))
    length = min(args.length or _length(args, runs), code_BT.shape[1])
    recall_BT = ask(run, documents=1, length=length)[0].tokens_BT
    return np.concatenate([recall_BT, code_BT[:, :length]]), ["key-value recall", "code"]


def _length(args: argparse.Namespace, runs: Sequence) -> int:
    """Of texts that nobody chose: as trained, or what the page has room for."""
    models = [run.config.model for run in runs]
    layers, heads = args.layers or [], args.heads or []
    shown = sum(
        (len(layers) or each.num_layers) * (len(heads) or each.num_heads) for each in models
    )
    # A byte for a weight, one for a feature of a query or key; base64 has four for three.
    room = args.max_size * 1e6 * 3 / 4 / (2 * shown)
    width = 2 * max(each.head_dim for each in models)
    fits = int(math.sqrt(width**2 + 2 * room) - width)
    return max(1, min(fits, *(run.config.data.context_length for run in runs)))


if __name__ == "__main__":
    sys.exit(main())
