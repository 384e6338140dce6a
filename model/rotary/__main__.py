"""`python -m model.rotary show ...`: what a variant's frequencies are, before money is spent.

A command: unlike the folder's other files it knows the configs, and what theory says.
"""

import argparse
import dataclasses
import json
import os
import sys

from configs import load_configs
from experiment import overrides
from model import rotary
from model.rotary import Rotary
from model.rotary.show import Head, as_json, as_text, cookbook, plot, report
from settings.commands import Parser
from settings.expressions import nearest, split_commas
from theory import decay

EPILOG = f"""\
examples:
  python -m model.rotary show "rope(base=1e4)"
  python -m model.rotary show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
  python -m model.rotary show demo --plot wavelengths.png     # every member of a config's sweep

A config brings its own head and context; an expression has {Head.dim} features and {Head.length} \
tokens.
variants: {", ".join(sorted(rotary.variants()))}
"""


def find(text: str) -> list[tuple[Rotary, Head]]:
    """The variants that `text` names, and where each is to be looked at.

    Args:
      text: an expression, several with commas between, a pattern, or the name of a
        config, whose sweep's members are all taken.
    """
    if "(" in text or text.startswith("[") or ".py:" in text:
        entries = [(rotary.parse_pattern(part), Head()) for part in split_commas(text)]
    elif text in rotary.variants():
        entries = [(rotary.parse(text), Head())]
    else:
        configs = load_configs()
        if text not in configs:
            names = {*configs, *rotary.variants()}
            raise ValueError(f"unknown config or variant {text!r}; {nearest(text, names)}")
        members = configs[text].members or ((),)
        entries = []
        for config in (overrides.apply(configs[text], member) for member in members):
            model, length = config.model, config.data.context_length
            num_unrotated = model.head_dim - model.rope_head_dim
            head = Head(dim=model.rope_head_dim, num_unrotated=num_unrotated, length=length)
            entries.append((model.rotary, head))
    # In order, each once: members of a sweep may differ in other things.
    return list(
        dict.fromkeys(
            (variant, head) for pattern, head in entries for variant in rotary.heads_of(pattern)
        )
    )


def main() -> None:
    """Parses the command line, prints the reports."""
    parser = Parser(prog="python -m model.rotary", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    show = commands.add_parser(
        "show",
        help="wavelengths, cycles and warnings of variants",
        description="Prints, for each pair of each variant, its wavelength, the cycles it completes"
        "\nwithin the context, and how it compares with the same base unstretched.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument("what", nargs="+", metavar="CONFIG_OR_EXPR", help="name(parameter=value,...)")
    show.add_argument("--head-dim", type=int, metavar="D", help="features of a head, even")
    show.add_argument("--length", type=int, metavar="L", help="context in tokens")
    show.add_argument(
        "--json",
        action="store_true",
        help='print one JSON object; of several variants, {"schedules": [...]}',
    )
    show.add_argument("--plot", metavar="FILE.png", help="draw wavelength per pair, all in one")
    commands.add_parser("cookbook", help="the table of docs/rotary.md, from docstrings")
    args = parser.parse_args()
    if args.command == "cookbook":
        print(cookbook(), end="")
        return
    try:
        for flag, value in (("--head-dim", args.head_dim), ("--length", args.length)):
            if value is not None and value < 1:
                raise ValueError(f"{flag} must be at least 1, got {value}")
        given = {"dim": args.head_dim, "length": args.length}
        given = {name: value for name, value in given.items() if value is not None}
        reports = [
            report(variant, dataclasses.replace(head, **given), decay.first_violation)
            for text in args.what
            for variant, head in find(text)
        ]
        if args.plot:
            plot(reports, args.plot)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if args.json:
        objects = [as_json(seen) for seen in reports]
        text = json.dumps(objects[0] if len(objects) == 1 else {"schedules": objects})
    else:
        text = "\n\n".join(as_text(seen) for seen in reports)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `| head` has seen enough; nor may Python flush the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
