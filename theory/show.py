"""Shows the frequencies of rotary variants.

Prints, for each pair of each variant, its wavelength, the cycles it completes within the context,
and its ratio to the unscaled base. A config has its own head and context; an expression has 128
features and 4096 tokens.

examples:
  python -m model.rotary show "rope(base=1e4)"
  python -m model.rotary show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
  python -m model.rotary show demo --plot wavelengths.png     # every member of a config's sweep
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
# This file is a command, so unlike the other files of the folder it may import configs.

import argparse
import itertools
import json
from pathlib import Path

from configs import load_configs
from experiment import overrides
from model import rotary
from model.rotary import Rotary
from model.rotary.show import Head, as_json, as_text, cookbook, make_report
from theory import decay, figures
from utils.command_line import Parser, exit_with, expression, print_text, tokens
from utils.expressions import split_commas
from utils.messages import nearest


def find(text: str) -> list[tuple[Rotary, Head]]:
    """Return the variants that `text` names, with the head and context of each.

    Args:
      text: an expression, a comma list of expressions, a pattern, or the name of a config, which
        stands for all members of its sweep.
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
        entries = []
        for member in configs[text].members or ((),):
            config = overrides.apply(configs[text], member)
            dim = config.model.rope_head_dim
            num_unrotated, length = config.model.head_dim - dim, config.data.context_length
            head = Head(dim=dim, num_unrotated=num_unrotated, length=length)
            entries.append((config.model.rotary, head))
    # Without duplicates: members of a sweep may differ in other fields.
    return list(
        dict.fromkeys(
            (variant, head)
            for pattern, head in entries
            for variant in rotary.unique_variants(pattern)
        )
    )


def main() -> None:
    """Run the command line and print the reports."""
    options = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = Parser(prog="python -m model.rotary", **options)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    show = commands.add_parser(
        "show",
        help="wavelengths, cycles and warnings of variants",
        epilog=f"variants: {', '.join(sorted(rotary.variants()))}",
        **options,
    )
    text = "name(parameter=value,...)"
    show.add_argument("what", nargs="+", type=expression, metavar="CONFIG_OR_EXPR", help=text)
    show.add_argument("--head-dim", type=int, metavar="D", help="features of a head, even")
    show.add_argument("--length", type=tokens, metavar="L", help="context in tokens")
    text = 'print one JSON object; for several variants, {"schedules": [...]}'
    show.add_argument("--json", action="store_true", help=text)
    show.add_argument("--plot", metavar="FILE.png", help="draw the wavelengths of all variants")
    commands.add_parser("cookbook", help="the table of docs/rotary.md, from docstrings")
    args = parser.parse_args()
    if args.command == "cookbook":
        print(cookbook(), end="")
        return
    try:
        for flag, value in (("--head-dim", args.head_dim), ("--length", args.length)):
            if value is not None and value < 1:
                raise ValueError(f"{flag} must be at least 1, got {value}")
        reports = []
        for variant, head in itertools.chain.from_iterable(map(find, args.what)):
            sizes = {"dim": args.head_dim or head.dim, "length": args.length or head.length}
            reports.append(make_report(variant, head._replace(**sizes), decay.first_violation))
        if args.plot:
            figures.save(figures.wavelengths(reports), Path(args.plot))
    except (ValueError, OSError) as error:
        parser.refuse(error)
    if args.json:
        objects = list(map(as_json, reports))
        text = json.dumps(objects[0] if len(objects) == 1 else {"schedules": objects})
    else:
        text = "\n\n".join(map(as_text, reports))
    print_text(text)


if __name__ == "__main__":
    exit_with(main)
