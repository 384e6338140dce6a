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
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.configs import load_configs
from ropewalk.experiment import overrides
from ropewalk.model import rotary
from ropewalk.model.rotary.base import Rotary, geometric_inv_freq
from ropewalk.model.rotary.p_rope import PRope
from ropewalk.theory import decay
from ropewalk.utils.command_line import Parser, at_least, exit_with, expression, print_text, tokens
from ropewalk.utils.expressions import split_commas
from ropewalk.utils.messages import nearest


class Head(NamedTuple):
    """A head and the context in which a variant is examined.

    Attributes:
      dim: features that the variant applies to, even.
      num_unrotated: further features, which it does not apply to (MLA's).
      length: context in tokens.
    """

    dim: int = 128
    num_unrotated: int = 0
    length: int = 4096


class Report(NamedTuple):
    """A variant in a context of `length` tokens.

    Attributes:
      name: its expression.
      base: None if it has none.
      inv_freq: float64 `[head_dim // 2]`, radians per token, zeros for unrotated pairs.
      bands: for each pair "kept", "ramp" or "interpolated" relative to the variant's base
        unstretched, "unrotated", or "" if the variant has no base.
      stretch: how many times slower each pair is than at that base; nan if there is none.
      first_negative: the first distance m < length at which sum_i cos(m inv_freq_i) < 0, or None.
      wavelength: tokens per cycle; inf for an unrotated pair.
      turns: cycles completed within `length` tokens.
    """

    name: str
    base: float | None
    head_dim: int
    length: int
    rotary_dim: int
    inv_freq: np.ndarray
    logit_scale: float
    bands: list[str]
    stretch: np.ndarray
    first_negative: int | None
    warnings: list[str]
    wavelength: np.ndarray
    turns: np.ndarray


def make_report(variant: Rotary, head: Head) -> Report:
    """Report on `variant`; a dynamic one is that of a row of `head.length` tokens.

    Raises:
      ValueError: if the variant does not fit the head.
    """
    name = rotary.expression(variant)
    variant = variant.at_length(head.length)
    inv_freq = np.append(variant.inv_freq(head.dim), np.zeros(head.num_unrotated // 2))
    first_negative = decay.first_violation(inv_freq, head.length)
    stretch = _stretch(variant, head.dim, inv_freq)
    with np.errstate(divide="ignore"):
        wavelength = 2 * np.pi / inv_freq
    return Report(
        name=name,
        base=getattr(variant, "base", None),
        head_dim=2 * len(inv_freq),
        length=head.length,
        rotary_dim=variant.rotary_dim(head.dim) if inv_freq.any() else 0,
        inv_freq=inv_freq,
        logit_scale=variant.logit_scale,
        bands=_bands(variant, inv_freq, stretch),
        stretch=stretch,
        first_negative=first_negative,
        warnings=_warnings(variant, head, inv_freq, first_negative),
        wavelength=wavelength,
        turns=head.length * inv_freq / (2 * np.pi),
    )


def _stretch(variant: Rotary, head_dim: int, inv_freq: np.ndarray) -> np.ndarray:
    """Return how many times slower each pair is than in the geometric series of its base."""
    stretch = np.full(len(inv_freq), np.nan)
    base = getattr(variant, "base", None)
    if base is not None:
        series = head_dim if isinstance(variant, PRope) else variant.rotary_dim(head_dim)
        num_rotated = np.count_nonzero(inv_freq)
        plain = geometric_inv_freq(base, series)[:num_rotated]
        stretch[:num_rotated] = plain / inv_freq[:num_rotated]
    return stretch


def _bands(variant: Rotary, inv_freq: np.ndarray, stretch: np.ndarray) -> list[str]:
    """Return `Report.bands`."""
    parameters = vars(variant)
    factor = parameters.get("factor", math.inf)
    if "target_context_length" in parameters:
        factor = parameters["target_context_length"] / parameters["original_context_length"]

    is_kept, is_interpolated = stretch < 1 + 1e-9, stretch > factor * (1 - 1e-9)
    conditions = [inv_freq == 0, np.isnan(stretch), is_kept, is_interpolated]
    return np.select(conditions, ["unrotated", "", "kept", "interpolated"], "ramp").tolist()


def _warnings(
    variant: Rotary, head: Head, inv_freq: np.ndarray, first_negative: int | None
) -> list[str]:
    """Return warnings about training with this variant at this length."""
    length, rotary_dim = head.length, variant.rotary_dim(head.dim)
    share = variant.rotary_fraction * head.dim
    slow = np.flatnonzero((inv_freq > 0) & (length * inv_freq < 2 * np.pi))
    num_fast = np.count_nonzero(inv_freq > np.pi)
    error = length * inv_freq.max() * 2.0**-24
    warnings = {
        f"rotary_fraction={variant.rotary_fraction:g} of head_dim={head.dim} is {share:g} features,"
        f" not full pairs: {rotary_dim} are rotated": abs(share - rotary_dim) > 1e-6,
        f"{slow.size} of {len(inv_freq)} pairs ({slow.min(initial=len(inv_freq))} to "
        f"{slow.max(initial=0)}) never complete a cycle within {length} tokens: beyond, their "
        "angles did not occur in training": slow.size > 0,
        f"the sum of cosines is negative at distance {first_negative}, within {length} tokens: the "
        "bound of Men et al. (2024) ends there, and models retrieved beyond it (docs/results.md)": (
            first_negative is not None
        ),
        f"{num_fast} pairs rotate more than half a cycle per token, which equals a slower rotation "
        "backwards": num_fast > 0,
        f"precision: position times frequency in float32 is up to {error:.1g} rad off at {length} "
        "tokens; ropewalk's phases are accurate, other programs' may not be": error > 1e-3,
    }
    return [warning for warning, applies in warnings.items() if applies]


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


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON values, with stable keys; infinite numbers become null."""

    def to_json(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [float(x) if math.isfinite(x) else None for x in value]
        return value

    # The base is part of the name.
    return {name: to_json(x) for name, x in report._asdict().items() if name != "base"}


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
    parser = Parser(prog="python -m model.rotary", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    show = commands.add_parser(
        "show",
        help="wavelengths, cycles and warnings of variants",
        epilog=f"variants: {', '.join(sorted(rotary.variants()))}",
        description=__doc__,
    )
    text = "name(parameter=value,...)"
    show.add_argument("what", nargs="+", type=expression, metavar="CONFIG_OR_EXPR", help=text)
    show.add_argument("--head-dim", type=at_least(1), metavar="D", help="features of a head, even")
    show.add_argument("--length", type=tokens, metavar="L", help="context in tokens")
    text = 'print one JSON object; for several variants, {"schedules": [...]}'
    show.add_argument("--json", action="store_true", help=text)
    show.add_argument("--plot", metavar="FILE.png", help="draw the wavelengths of all variants")
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

            figures.save(figures.wavelengths(reports), Path(args.plot))
    if args.json:
        objects = list(map(as_json, reports))
        text = json.dumps(objects[0] if len(objects) == 1 else {"schedules": objects})
    else:
        text = "\n\n".join(map(as_text, reports))
    print_text(text)


if __name__ == "__main__":
    exit_with(main)
