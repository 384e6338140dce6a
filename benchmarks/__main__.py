"""`python -m benchmarks NAME`: each prints ratios of things that alternated in one run."""

import argparse
import importlib
import sys

from settings.commands import Parser

# Imported only when asked for: torch and jax take seconds each.
BENCHMARKS = {
    "train-step": "our training step beside transformers' Llama and torch's AdamW (needs torch)",
    "pipeline": "tokens/s of the input pipeline beside what a sweep of six consumes",
    "members": "a sweep step of four members beside four steps of one",
    "evaluation": "scoring beside a bare forward pass; eight members, four tasks, three lengths",
    "checkpoints": "what digests add to saving and restoring, at 30M and 125M parameters",
    "inside": "capturing queries and keys beside a plain forward pass",
    "viewer": "pointing at a token of the viewer's page (needs playwright: make test-browser)",
    "decode": "seconds a token of greedy text beside transformers' generate (needs torch)",
    "phases": "a step with exact phases beside one with a plain float32 product",
}
# In pieces, each of which writes a file: what performance.md is made of.
SETS = {
    "cpu": "everything on this machine's cores, beside what they can do: under ten minutes",
    "gpu": "everything on one GPU, in pieces of minutes; --scale 0.01: a dry run anywhere",
}


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in SETS:
        command = importlib.import_module(f"benchmarks.{sys.argv[1]}").COMMAND
        return importlib.import_module("benchmarks.pieces").main(command, sys.argv[2:])
    listed = "\n".join(f"  {name:<12} {text}" for name, text in (SETS | BENCHMARKS).items())
    parser = Parser(
        prog="python -m benchmarks",
        description=f"{__doc__}\n\n{listed}",
        epilog="Certified bounds have a command of their own: python -m benchmarks.theory --help",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("name", choices=[*SETS, *BENCHMARKS], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=10, help="alternations (default 10)")
    arguments = parser.parse_args()
    module = importlib.import_module(f"benchmarks.{arguments.name.replace('-', '_')}")
    try:
        module.main(arguments.rounds)
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
