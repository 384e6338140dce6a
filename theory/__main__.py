"""`python -m theory COMMAND ...`: what the papers' bound says of a base, variant or run."""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Column, Table

from model import rotary
from model.rotary.rope import Rope
from settings.commands import Parser, expression, tokens
from settings.messages import nearest
from theory import asymptotic, bound, capability, decay, family, figures, predictions, published

OPEN = "?"  # stands for the number to be found in a variant's expression


def _bases(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a comma list of bases, like 1e4,1e6"
        ) from None


# --- bound and length ----------------------------------------------------------------------------


def bound_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Smallest base whose B_m is non-negative below a length, with a proof.

    B_m = sum_i cos(m base^(-2i/d)) >= 0 for every m below the length (Men et al. 2024, Eq. 18), to
    1e-8; see docs/theory.md.
    """
    _check_fraction(args)
    text = args.rotary or f"rope(base={OPEN},rotary_fraction={args.rotary_fraction!r})"
    opened, number, fraction = _open(text, args.head_dim)
    (smallest,) = bound.smallest(opened, [args.length])
    result = {"length": args.length, "head_dim": args.head_dim, "rotary_fraction": fraction}
    result |= {"low": smallest.low, "high": smallest.high}
    result |= {"rotary": args.rotary, "open": number} if args.rotary else {}
    count = len(smallest.certificate.witnesses)
    lines = [f"{number} {smallest.high:.10g} is the smallest that covers {args.length:,} tokens"]
    if count:
        lines += [
            f"  [{smallest.low!r}, {smallest.high!r}]",
            f"  below: infeasible, proved on {count:,} intervals of ln({number}), a distance each",
            f"  at the upper end: B_m > 0 at every distance; B_{smallest.critical} is the last to "
            "rise above 0",
        ]
    else:
        lines += [f"  so does every {number} between 1 and it"]
    typed = advice(opened, smallest.high, args.length)
    lines += [f"  to type: {typed} (checked at every distance)"]
    if args.stable or args.intervals:
        stable = bound.stable(opened, args.length)
        result |= {"stable": stable.high} if args.stable else {}
        lines += [f"every {number} above {stable.high:.10g} covers it, without an upper limit"]
    if args.intervals:
        intervals = bound.intervals(opened, args.length, smallest.high).feasible
        result["intervals"] = [[low, _finite(high)] for low, high in intervals]
        lines += [f"feasible intervals of {number} ({len(intervals)}):"]
        lines += [f"  {low!r} to {high!r}" for low, high in intervals]
    return result, "\n".join(lines)


def advice(opened: family.Family, number: float, length: int) -> str:
    """The shortest decimal at or just above `number` that is itself feasible."""
    for digits in range(2, 17):
        unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
        text = f"{math.ceil(number / unit) * unit:.{digits}g}"
        # Rounded up by more than a few percent it would be another answer.
        near = max(number, 1 + 1e-15) <= float(text) <= 1.05 * number
        if near and bound.surely_feasible(opened, float(text), length):
            return text
    return repr(number)


def _check_fraction(args: argparse.Namespace) -> None:
    if args.rotary and args.rotary_fraction != 1:
        raise ValueError("with --rotary, write rotary_fraction=... in the expression")


def _open(text: str, head_dim: int) -> tuple[family.Family, str, float]:
    """The family of an expression with one `?`, the name of that number, and the fraction."""
    if text.count(OPEN) != 1:
        raise ValueError(f"--rotary must have one number open, like rope(base=?), got {text!r}")
    variant = rotary.parse(text.replace(OPEN, "2"))
    number = re.split(r"[(,]", text.partition(OPEN)[0])[-1].strip(" =")
    return family.opened(variant, number, head_dim), number, variant.rotary_fraction


def length_command(args: argparse.Namespace) -> tuple[dict, str]:
    """First distance (tokens) at which B_m = sum_i cos(m inv_freq_i) is negative."""
    if args.limit < 1:
        raise ValueError(f"--limit must be at least 1 token, got {args.limit}")
    result, heads = _violations_of_run(args) if args.run else _violation_of_variant(args)
    layers = [predictions.farthest(layer) for layer in heads]
    first = predictions.farthest(layers)
    result |= {"first_violation": first}
    result |= {"checked_up_to": args.limit - 1 if first is None else first}
    named = {"": first}
    if args.run:
        result["layers"] = layers
    if len(heads[0]) > 1:
        result["heads"] = heads
        named = {
            f"layer {index}, head {head}: ": found
            for index, layer in enumerate(heads)
            for head, found in enumerate(layer)
        }
    elif len(set(layers)) > 1:
        named = {f"layer {index}: ": found for index, found in enumerate(layers)}
    return result, "\n".join(name + _first(found, args.limit) for name, found in named.items())


def _violation_of_variant(args: argparse.Namespace) -> tuple[dict, list[list[int | None]]]:
    _check_fraction(args)
    if args.rotary:
        variant = rotary.parse(args.rotary)
    else:
        variant = Rope(base=args.base, rotary_fraction=args.rotary_fraction)
    first = decay.first_violation(variant.inv_freq(args.head_dim), args.limit)
    return {"rotary": rotary.expression(variant), "head_dim": args.head_dim}, [[first]]


def _violations_of_run(args: argparse.Namespace) -> tuple[dict, list[list[int | None]]]:
    result, inv_freq_LKR, _ = _read_run(args.run)
    return result, predictions.by_layer(inv_freq_LKR, args.limit)


def _read_run(path: Path) -> tuple[dict, np.ndarray, int]:
    """What it is called, its frequencies `[L, K, R]`, and how many query heads it has."""
    # The only place where theory looks at a run: the other commands start without jax.
    from experiment.run import RunDirectory

    config = RunDirectory(path).config
    inv_freq_LKR = config.model.rotary_table(config.data.context_length).inv_freq
    result = {"run": str(path), "head_dim": config.model.head_dim}
    return result, inv_freq_LKR, config.model.num_heads


def _first(first: int | None, limit: int) -> str:
    return f"> {limit - 1}" if first is None else str(first)


# --- capability ----------------------------------------------------------------------------------


def capability_command(args: argparse.Namespace) -> tuple[dict, str]:
    """How well the heads of a layer can tell keys apart up to a length.

    D_H, over all weights and phases, at the worst distance from 1 to the length, in standard
    deviations of a key that does not match: exact for one head, for several what a partition of
    the distances among them attains. Where layers differ, of the best; see docs/theory.md.
    """
    result, inv_freq_LNR = _heads_of_run(args) if args.run else _heads_of_pattern(args)
    different, which = np.unique(inv_freq_LNR, axis=0, return_inverse=True)
    found = [capability.capability(heads_NR, args.length) for heads_NR in different]
    layers = [found[index] for index in which.ravel()]
    facts = [
        {"capability": each.value, "certificate": each.certificate, "partition": each.partition}
        for each in layers
    ]
    best = int(np.argmax([each.value for each in layers]))
    result |= {"heads": inv_freq_LNR.shape[1], "length": args.length} | facts[best]
    lines = [_attained(each) for each in layers]
    if len(layers) > 1:
        result["layers"] = facts
        lines = [f"layer {index}: {line}" for index, line in enumerate(lines)]
    if args.others is not None:
        asked = {"num_others": args.others, "longest": args.length}
        farthest = capability.farthest(inv_freq_LNR, **asked)
        result |= {"num_others": args.others, "needed": farthest.needed}
        result |= {"forecast": farthest.l50, "beyond": farthest.beyond}
        lines.append(
            f"half of the answers right among {args.others} other keys takes "
            f"{farthest.needed:.4g}: L50 {farthest} tokens"
        )
    if args.out:
        figures.save(figures.capabilities(inv_freq_LNR[best], args.length, args.others), args.out)
        result["figure"] = str(args.out)
        lines.append(f"drawn: {args.out}")
    return result, "\n".join(lines)


def _heads_of_pattern(args: argparse.Namespace) -> tuple[dict, np.ndarray]:
    """What is asked about, and the frequencies of its heads, `[L, N, R]`."""
    heads = 1 if args.heads is None else args.heads
    if heads < 1:
        raise ValueError(f"--heads must be at least 1, got {heads}")
    pattern = rotary.parse_pattern(args.rotary)
    num_layers = len(pattern) if isinstance(pattern, tuple) else 1
    sizes = rotary.HeadSizes(num_layers=num_layers, num_kv_heads=heads, head_dim=args.head_dim)
    table = rotary.table(pattern, sizes, max(args.length, 2))
    result = {"rotary": rotary.expression(pattern), "head_dim": args.head_dim}
    return result, capability.of_heads(table.inv_freq, heads)


def _heads_of_run(args: argparse.Namespace) -> tuple[dict, np.ndarray]:
    if args.heads is not None:
        raise ValueError("a run has heads of its own: leave --heads out")
    result, inv_freq_LKR, num_heads = _read_run(args.run)
    return result, capability.of_heads(inv_freq_LKR, num_heads)


def _attained(found: capability.Capability) -> str:
    if found.certificate is not None:
        return f"{found.value:.6g} (no weights do better than {found.certificate:.6g})"
    parts = (
        ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in part)
        for part in found.partition
    )
    lines = (f"  head {head}: {part or 'none'}" for head, part in enumerate(parts))
    return "\n".join([f"{found.value:.6g} or more, with these distances to each head", *lines])


# --- table, models, curve ------------------------------------------------------------------------


def table_command(args: argparse.Namespace) -> tuple[dict, str]:
    """The papers' table of smallest bases beside ours."""
    lengths = sorted(args.lengths)
    # Both papers have one head only.
    papers = (published.MEN_2024, published.SU_2024) if args.head_dim == 128 else ({}, {})
    rows = []
    for answer in bound.smallest(family.rope_base(args.head_dim), lengths):
        men, su = (paper.get(answer.length) for paper in papers)
        rows.append(
            {
                "length": answer.length,
                "low": answer.low,
                "high": answer.high,
                "critical": answer.critical,
                "intervals_proved": len(answer.certificate.witnesses),
                "asymptotic": asymptotic.smallest_base(answer.length),
                "men_2024": men,
                "men_above_ours": None if men is None else men / answer.high - 1,
                "su_2024": su,
                "su_agrees": None if su is None else su == float(f"{answer.high:.1e}"),
            }
        )
    if args.figure:
        figures.save(figures.base_against_length(rows), args.figure)
    return {"head_dim": args.head_dim, "rows": rows}, _drawn(
        [],
        ["length", "ours", "m*", "intervals", "L/x0", "Su 2024", "Men et al.", "theirs is"],
        map(_table_line, rows),
        title=f"Smallest base that covers a length, head_dim {args.head_dim}",
        caption="Every smaller base is infeasible: proved on that many intervals of ln(base), each"
        " by one distance m. At ours, B_m >= 0 at every distance: checked. m*: the last distance"
        " to rise above 0. L/x0: the estimate for infinitely many pairs.",
    )


def _table_line(row: dict) -> list[str]:
    cells = [_short(row["length"]), f"{row['high']:.9g}", f"{row['critical'] or '-'}"]
    cells += [f"{row['intervals_proved']:,}", f"{row['asymptotic']:.2g}"]
    if row["men_2024"] is None:
        return [*cells, "-", "-", "-"]
    same = row["men_2024"] == float(f"{row['high']:.1e}")
    difference = "the same" if same else f"{row['men_above_ours']:+.0%}"
    su = f"{row['su_2024']:.1e}" + ("" if row["su_agrees"] else " (differs)")
    return [*cells, su, f"{row['men_2024']:.1e}", difference]


def models_command(args: argparse.Namespace) -> tuple[dict, str]:
    """What theory says of published open models."""
    names = list(dict.fromkeys(model.name for model in published.OPEN_MODELS))
    for name in args.names:
        if name not in names:
            raise ValueError(f"unknown model {name!r}; {nearest(name, names)}")
    rows = [_facts(m) for m in published.OPEN_MODELS if m.name in (args.names or names)]
    return {"models": rows}, _drawn(
        ["model", "layers", "rotary"],
        ["context", "first\nB_m < 0", "covers", "quarter\nperiod"],
        map(_model_line, rows),
        title="Published settings of open models",
        caption="first B_m < 0: none means that unrotated pairs outweigh all others (proved).",
    )


def _facts(model: published.OpenModel) -> dict:
    variant, length = rotary.parse(model.rotary), model.context_length
    inv_freq, rotary_dim = variant.inv_freq(model.head_dim), variant.rotary_dim(model.head_dim)
    first = decay.first_violation(inv_freq, decay.LONGEST)
    base = getattr(variant, "base", None)
    return {
        "model": model.name,
        "layers": model.layers,
        "rotary": rotary.expression(variant),
        "head_dim": model.head_dim,
        "context_length": length,
        "first_violation": first,
        "covers": first is None or first >= length,
        "quarter_period": _finite(decay.quarter_period(inv_freq)),
        "critical_dimension": base and asymptotic.critical_dimension(base, rotary_dim, length),
        "source": model.source,
    }


def _model_line(row: dict) -> list[str]:
    first, quarter = row["first_violation"], row["quarter_period"]
    return [
        *(row[key] for key in ("model", "layers", "rotary")),
        _short(row["context_length"]),
        "none" if first is None else f"{first:,}",
        "yes" if row["covers"] else "no",
        "never" if quarter is None else f"{quarter:,.0f}",
    ]


def curve_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Draw B_m over distance."""
    variants = [*(Rope(base=base) for base in args.base), *map(rotary.parse, args.rotary)]
    if not variants:
        raise ValueError("give --base 1e4,1e6 or --rotary EXPR, as often as you like")
    bound.check_length(args.length)
    curves = {rotary.expression(each): each.inv_freq(args.head_dim) for each in variants}
    figures.save(figures.decay_curves(curves, args.length), args.out)
    firsts = {name: decay.first_violation(vector, args.length) for name, vector in curves.items()}
    result = {"figure": str(args.out), "length": args.length, "first_violation": firsts}
    lines = [f"{_first(first, args.length)}  {name}" for name, first in firsts.items()]
    return result, "\n".join([*lines, f"drawn: {args.out}"])


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _short(length: int) -> str:
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if length % size == 0:
            return f"{length // size}{unit}"
    return f"{length:,}"


def _drawn(
    words: Sequence[str], numbers: Sequence[str], lines: Iterable[Sequence[str]], **options: str
) -> str:
    """A table: columns of words, which may fold, then columns of numbers."""
    columns = [Column(head, overflow="fold") for head in words]
    columns += [Column(head, justify="right", no_wrap=True) for head in numbers]
    table = Table(*columns, box=box.SIMPLE_HEAD, **options)  # pyright: ignore[reportArgumentType]
    for line in lines:
        table.add_row(*line)
    # A table is never cut to the width of a pipe.
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


# --- the command line ----------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m theory", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    head = Parser(add_help=False)
    text = "features of a head, even (default: 128)"
    head.add_argument("--head-dim", type=int, default=128, help=text)
    share = Parser(add_help=False)
    text = "share of the head that is rotated"
    share.add_argument("--rotary-fraction", type=float, default=1.0, help=text)

    def add(function, *parents):
        """A command called as its function, which also describes it."""
        name, text = function.__name__.removesuffix("_command"), function.__doc__
        summary = text.partition("\n")[0].rstrip(".")
        command = commands.add_parser(name, help=summary, description=text, parents=parents)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.set_defaults(function=function)
        return command

    option = add(bound_command, head, share).add_argument
    option("--length", type=tokens, required=True, help="tokens: 131072 or 128k")
    text = "another variant, the number to find written as ?: 'yarn(base=1e4,factor=?,"
    option(
        "--rotary", type=expression, metavar="EXPR", help=f"{text}original_context_length=4096)'"
    )
    option("--stable", action="store_true", help="also the base above which every base will do")
    option("--intervals", action="store_true", help="also every feasible interval below that")

    command = add(length_command, head, share)
    text = "distances below this are tested (default: 2^31)"
    command.add_argument("--limit", type=tokens, default=2**31, help=text)
    option = command.add_mutually_exclusive_group(required=True).add_argument
    option("--base", type=float, help="plain RoPE with this base")
    option(
        "--rotary",
        type=expression,
        metavar="EXPR",
        help="any variant: 'ntk_aware(base=1e4,factor=8)'",
    )
    option("run", nargs="?", type=Path, help="a run directory: each layer's own")

    command = add(capability_command, head)
    option = command.add_mutually_exclusive_group(required=True).add_argument
    text = "a variant, or a pattern over layers and heads: '[[rope(base=10),nope]]'"
    option("--rotary", type=expression, metavar="EXPR", help=text)
    option("run", nargs="?", type=Path, help="a run directory: each layer's own heads")
    option = command.add_argument
    option("--heads", type=int, help="query heads of a layer (default: 1)")
    option("--length", type=tokens, required=True, help="tokens: 4096 or 4k")
    text = "also the L50 this forecasts among so many keys that do not match"
    option("--others", type=int, metavar="N", help=text)
    text = "also draw it against length, for 1, 2, 4, ... of the heads: FILE.png, .svg or .pdf"
    option("--out", type=Path, help=text)

    option = add(table_command, head).add_argument
    text = "default: 1k to 1M"
    option("--lengths", type=tokens, nargs="+", default=published.LENGTHS, help=text)
    option("--figure", type=Path, help="also draw it: FILE.png, .svg or .pdf")

    option = add(models_command).add_argument
    option("names", nargs="*", metavar="NAME", help="default: all")

    option = add(curve_command, head).add_argument
    option("--base", type=_bases, default=[], help="comma list of bases of plain RoPE")
    option(
        "--rotary",
        type=expression,
        metavar="EXPR",
        action="append",
        default=[],
        help="any variant; repeat",
    )
    option("--length", type=tokens, default=4096, help="tokens (default: 4096)")
    option("--out", type=Path, default=Path("curve.png"), help="FILE.png, .svg or .pdf")
    return parser


def main() -> None:
    """Parses the command line, prints one result."""
    parser = _parser()
    args = parser.parse_args()
    waiting = Console(stderr=True).status("computing") if sys.stderr.isatty() else nullcontext()
    try:
        with waiting:
            result, text = args.function(args)
    except (ValueError, ArithmeticError, OSError) as error:
        parser.error(str(error))
    print(json.dumps(result) if args.json else text)


if __name__ == "__main__":
    sys.exit(main())
