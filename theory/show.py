"""Shows the frequencies of rotary variants.

Prints, for each pair of each variant, its wavelength, the cycles it completes within the context,
and its ratio to the unscaled base. A config has its own head and context; an expression has 128
features and 4096 tokens.

examples:
  python -m model.rotary show "rope(base=1e4)"
  python -m model.rotary show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
  python -m model.rotary show demo --plot wavelengths.png     # every member of a config's sweep
"""

import ropewalk.utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import inspect
import itertools
import json
import re
from pathlib import Path

from ropewalk.configs import config_argument, find_config, load_configs
from ropewalk.experiment import overrides
from ropewalk.model import rotary
from ropewalk.model.rotary.base import Rotary
from ropewalk.theory.command_line import figure_path, to_json
from ropewalk.theory.wavelengths import Head, Report, make_report
from ropewalk.utils.command_line import Parser, at_least, exit_with, expression, print_text, tokens
from ropewalk.utils.expressions import split_commas
from ropewalk.utils.messages import nearest
from ropewalk.utils.plugins import run_file


def cookbook() -> str:
    """Return the table of docs/rotary.md, from the "Cookbook" of each variant's docstring."""
    heads = ("variant", "frequency of pair i", "source", "when to use", "name in transformers")
    lines = [(*heads, "config line"), ("---",) * 6]
    for name, cls in rotary.variants().items():
        section = inspect.cleandoc(cls.__doc__ or "").partition("Cookbook:\n")[2]
        # Lines with more indentation continue an entry.
        entries = re.sub(r"\n {3,}", " ", section).splitlines()
        lines.append((name, *(entry.partition(": ")[2] for entry in entries)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def as_text(report: Report) -> str:
    """Return the report as a text table."""
    first, length = report.first_negative, report.length
    lines = [
        report.name,
        f"  head_dim {report.head_dim}, of which {report.rotary_dim} are rotated; {length} tokens; "
        f"logit scale {report.logit_scale:g}; first negative sum of cosines: "
        + (f"none below {length}" if first is None else f"distance {first}"),
        "",
        "  pair    inv_freq   wavelength      cycles  slower by",
    ]
    columns = report.inv_freq, report.wavelength, report.turns, report.stretch, report.bands
    for pair, row in enumerate(zip(*columns, strict=True)):
        line = "  {:4d}  {:10.4g}  {:11.5g}  {:10.4g}  {:>9.4g}  {}".format(pair, *row)
        lines.append(line.replace("nan", "   ").rstrip())
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in report.warnings)])


def find(text: str) -> list[tuple[Rotary, Head]]:
    """Return the variants that `text` names, with the head and context of each.

    Args:
      text: an expression, a comma list of expressions, a pattern, or a config (its name, or
        FILE.py), which stands for all members of its sweep.
    """
    is_variant = "(" in text or text.startswith("[") or text in rotary.variants()
    is_file = not is_variant and re.search(r"\.py(:|$)", text)
    if is_variant or (is_file and not hasattr(run_file(Path(text.partition(":")[0])), "configs")):
        entries = [(rotary.parse_pattern(part), Head()) for part in split_commas(text)]
    else:
        configs = {text: find_config(text)} if is_file else load_configs()
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


def _argument(text: str) -> str:
    """Return the argument, whose file this process may then execute."""
    return expression(config_argument(text))


def main() -> None:
    """Run the command line and print the reports."""
    parser = Parser(prog="python -m model.rotary", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    show = commands.add_parser(
        "show",
        help="wavelengths, cycles and warnings of variants",
        epilog=f"variants: {', '.join(sorted(rotary.variants()))}",
        description=__doc__,
    )
    text = "name(parameter=value,...)"
    show.add_argument("what", nargs="+", type=_argument, metavar="CONFIG_OR_EXPR", help=text)
    show.add_argument("--head-dim", type=at_least(1), metavar="D", help="features of a head, even")
    show.add_argument("--length", type=tokens, metavar="L", help="context in tokens")
    text = 'print one JSON object; for several variants, {"schedules": [...]}'
    show.add_argument("--json", action="store_true", help=text)
    text = "draw the wavelengths of all variants"
    show.add_argument("--plot", type=figure_path, metavar="FILE.png", help=text)
    commands.add_parser("cookbook", help="the table of docs/rotary.md, from docstrings")
    args = parser.parse_args()
    if args.command == "cookbook":
        print(cookbook(), end="")
        return
    with parser.refusing(ValueError, OSError):
        reports = []
        for variant, head in itertools.chain.from_iterable(map(find, args.what)):
            sizes = {"dim": args.head_dim or head.dim, "length": args.length or head.length}
            reports.append(make_report(variant, head._replace(**sizes)))
        if args.plot:
            from ropewalk.theory import figures  # late: matplotlib is slow to import

            figures.save(figures.wavelengths(reports), args.plot)
    if args.json:
        objects = [to_json(report._asdict()) for report in reports]
        for item in objects:
            del item["base"]  # part of the name
        text = json.dumps(objects[0] if len(objects) == 1 else {"schedules": objects})
    else:
        text = "\n\n".join(map(as_text, reports))
    print_text(text)


if __name__ == "__main__":
    exit_with(main)
