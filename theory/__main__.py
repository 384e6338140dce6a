"""`python -m theory length ...`: how far a schedule sees, by the papers' bound."""

import argparse
import json
import sys

from model import rotary
from model.rotary.rope import Rope
from theory import decay


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line, no usage: scripts and people read the reason, `--help` teaches the rest."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def length(args: argparse.Namespace) -> tuple[dict, str]:
    """The first distance at which B_m < 0: as one JSON object, and in plain words."""
    if args.limit < 1:
        raise ValueError(f"--limit must be at least 1 token, got {args.limit}")
    schedule = rotary.parse(args.rotary) if args.rotary else Rope(base=args.base)
    first = decay.first_negative(schedule.inv_freq(args.head_dim), args.limit)
    last = args.limit - 1 if first is None else first
    result = {
        "rotary": rotary.expression(schedule),
        "head_dim": args.head_dim,
        "first_violation": first,
        "checked_up_to": last,
    }
    return result, f"> {last}" if first is None else str(first)


def main() -> None:
    """Parses the command line, prints one result."""
    parser = _Parser(prog="python -m theory", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "length",
        help="first distance (tokens) at which B_m = sum_i cos(m inv_freq_i) is negative",
        description="Prints the first distance m, in tokens, at which B_m = sum_i cos(m inv_freq_i)"
        " is negative (Men et al. 2024, Eq. 17); '> N' if it is not negative up to N.",
    )
    schedule = command.add_mutually_exclusive_group(required=True)
    schedule.add_argument("--base", type=float, help="plain RoPE with this base")
    schedule.add_argument(
        "--rotary", metavar="EXPR", help="any schedule: 'ntk_aware(base=1e4,factor=8)'"
    )
    command.add_argument("--head-dim", type=int, required=True, help="features of a head, even")
    command.add_argument(
        "--limit", type=int, default=2**20, help="distances below this are tested (default: 2^20)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(function=length)
    args = parser.parse_args()
    try:
        result, text = args.function(args)
    except ValueError as error:
        parser.error(str(error))
    print(json.dumps(result) if args.json else text)


if __name__ == "__main__":
    sys.exit(main())
