"""Looks into trained models: python -m probes RUN_OR_SWEEP_DIR [RUN_OR_SWEEP_DIR ...]

Asks every member the questions of key-value recall and captures its queries and keys. Of each head:
by how much the key that matches stands out at every distance, where that advantage ends, which
window filter of the theory it is most like, and at which distances it would answer by itself.
Writes the figure, and the arrays of each member (`probes/by_distance.npz` in its directory).
"""

import argparse
import dataclasses
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from settings.commands import Parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = Parser(
        prog="python -m probes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dirs", nargs="+", type=Path, metavar="RUN_OR_SWEEP_DIR")
    parser.add_argument("--documents", type=int, default=256, metavar="N", help="default 256")
    parser.add_argument("--length", type=int, metavar="TOKENS", help="default: as trained")
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.png", help="default: matching_keys.png in the first DIR"
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
    """Captures, measures and draws what the command line names."""
    # After parsing: --help needs none of JAX and matplotlib.
    import matplotlib
    import numpy as np

    from data.files import write_atomically
    from experiment import load
    from experiment.run import find_runs
    from probes.by_distance import by_distance
    from probes.figures import matching_keys
    from probes.questions import answered, ask
    from reporting.looks import STYLE

    found = {}
    for run in find_runs(args.dirs):
        with console.status(f"looking into {run.name}"):
            loaded = load(run.path, args.step)
            inside, questions = ask(loaded, documents=args.documents, length=args.length)
            by = by_distance(inside, questions)
            right_Q = answered(inside, questions)
        found[run.name] = by, questions, right_Q
        arrays = {field.name: getattr(by, field.name) for field in dataclasses.fields(by)}
        buffer = io.BytesIO()
        np.savez(buffer, step=loaded.step, **arrays)
        (run.path / "probes").mkdir(exist_ok=True)
        write_atomically(run.path / "probes" / "by_distance.npz", buffer.getvalue())
        Console().print(_table(run.name, by, right_Q.mean()))
    matplotlib.use("Agg")  # a file needs no display
    out = args.out or args.dirs[0] / "matching_keys.png"
    with matplotlib.rc_context(STYLE):
        matching_keys(found).savefig(out)
    print(out)


def _table(name: str, by, right: float) -> Table:
    """A line a head."""
    table = Table(title=f"{name}: {right:.0%} answered right", title_justify="left", box=None)
    for column in ("layer", "head", "advantage ends [95% CI]", "like a window of", "alone answers"):
        table.add_column(column, justify="right")
    for layer, zeros_N in enumerate(by.zero_LN):
        for head, zero in enumerate(zeros_N):
            low, high = by.zero_low_LN[layer, head], by.zero_high_LN[layer, head]
            length, cosine = by.window(layer, head)
            ends = f"{_tokens(zero, by)} [{_tokens(low, by)}, {_tokens(high, by)}]"
            alone = ", ".join(f"{first}-{last}" for first, last in by.alone(layer, head))
            window = f"{length} (cosine {cosine:.2f})"
            table.add_row(str(layer), str(head), ends, window, alone or "nothing")
    return table


def _tokens(distance: float, by) -> str:
    return f"> {by.distances_M[-1]}" if math.isinf(distance) else f"{distance:.3g}"


if __name__ == "__main__":
    sys.exit(main())
