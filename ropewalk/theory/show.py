"""Show the frequencies of rotary variants: `ropewalk theory show`."""

import argparse
import inspect
import itertools
import re
from pathlib import Path

from ropewalk.configs import config_argument, find_config, load_configs
from ropewalk.experiment import overrides
from ropewalk.model import rotary
from ropewalk.model.rotary.base import Rotary
from ropewalk.theory.command_line import figure_path, to_json
from ropewalk.theory.wavelengths import Head, Report, make_report
from ropewalk.utils.command_line import at_least, expression, tokens
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


def show_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Show the frequencies of variants: wavelength, cycles in the context, ratio to the base.

    A config has its own head and context; an expression has 128 features and 4096 tokens.

    examples:
      ropewalk theory show "rope(base=1e4)"
      ropewalk theory show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
      ropewalk theory show demo --plot wavelengths.png     every member of a config's sweep
    """
    reports = []
    for variant, head in itertools.chain.from_iterable(map(find, args.what)):
        sizes = {"dim": args.head_dim or head.dim, "length": args.length or head.length}
        reports.append(make_report(variant, head._replace(**sizes)))
    if args.plot:
        from ropewalk.theory import figures  # late: matplotlib is slow to import

        figures.save(figures.wavelengths(reports), args.plot)
    objects = [to_json(report._asdict()) for report in reports]
    for item in objects:
        del item["base"]  # part of the name
    result = objects[0] if len(objects) == 1 else {"schedules": objects}
    return result, "\n\n".join(map(as_text, reports))


def cookbook_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Print the table of docs/rotary.md, from docstrings."""
    return {"table": cookbook()}, cookbook().removesuffix("\n")


def add_show_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `show_command`."""
    command.epilog = f"variants: {', '.join(sorted(rotary.variants()))}"
    text = "name(parameter=value,...)"
    command.add_argument("what", nargs="+", type=_argument, metavar="CONFIG_OR_EXPR", help=text)
    command.add_argument(
        "--head-dim", type=at_least(1), metavar="D", help="features of a head, even"
    )
    command.add_argument("--length", type=tokens, metavar="L", help="context in tokens")
    text = "draw the wavelengths of all variants"
    command.add_argument("--plot", type=figure_path, metavar="FILE.png", help=text)
