"""`ropewalk theory COMMAND ...`: bounds and capability of a base, variant, or run."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products are small: more threads only wait

# isort: split
import argparse
import functools
import inspect
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from rich.console import Console

from ropewalk.interop.transformers_model import has_transformers
from ropewalk.model import rotary
from ropewalk.model.rotary.rope import Rope
from ropewalk.theory import audit, bound, capability, decay, positions, published
from ropewalk.theory.command_line import figure_path, format_table, to_json
from ropewalk.utils.command_line import Parser, at_least, exit_with, expression, print_text, tokens
from ropewalk.utils.messages import counted, nearest

_LONG = 2**19  # tokens; the smallest base for more is searched for half a minute
_PRINT_EVERY = 10  # seconds


def _bases(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a comma list of bases, like 1e4,1e6"
        ) from None


# --- show ----------------------------------------------------------------------------------------


def show_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Show the frequencies of variants: wavelength, cycles in the context, ratio to the base.

    A config has its own head and context; an expression has 128 features and 4096 tokens.

    examples:
      ropewalk theory show "rope(base=1e4)"
      ropewalk theory show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
      ropewalk theory show demo --plot wavelengths.png     every member of a config's sweep
      ropewalk theory show "rope(base=1e4)" --length 4k,32k --plot figure2.png     new angles
    """
    from ropewalk.theory import show  # late: matplotlib is slow to import

    reports = []
    for variant, head in itertools.chain.from_iterable(map(show.find, args.what)):
        length, longer = args.length or (head.length, None)
        head = head._replace(dim=args.head_dim or head.dim, length=length)
        reports.append(show.make_report(variant, head, longer))
    if args.plot:
        draw = show.draw_slowest if args.length and args.length[1] else show.draw_wavelengths
        show.save(draw(reports), args.plot)
    objects = [to_json(report._asdict()) for report in reports]
    for item in objects:
        del item["base"]  # part of the name
    result = objects[0] if len(objects) == 1 else {"schedules": objects}
    return result, "\n\n".join(map(show.as_text, reports))


def _lengths(text: str) -> tuple[int, int | None]:
    """Parse one length, or a trained one and a longer one."""
    first, *others = map(tokens, text.split(","))
    if len(others) > 1 or any(other <= first for other in others):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length, or two that ascend: 4k,32k")
    return first, others[0] if others else None


def _config_or_variant(text: str) -> str:
    """Return the argument, whose file this process may then execute."""
    from ropewalk.configs import allowed_config  # late: the other commands need no configs

    return expression(allowed_config(text))


def cookbook_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Print the table of docs/rotary.md, from docstrings."""
    from ropewalk.theory.show import cookbook  # late: matplotlib is slow to import

    return {"table": cookbook()}, cookbook().removesuffix("\n")


# --- bound and length ----------------------------------------------------------------------------


def bound_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Compute the smallest base whose B_m is non-negative below a length, with a proof.

    B_m = sum_i cos(m base^(-2i/d)) >= 0 for every m below the length (Men et al. 2024, Eq. 18), to
    1e-8; see docs/theory.md.
    """
    pairs = bound.pairs_of(args.head_dim, args.rotary_fraction)
    if args.length > _LONG:
        print("searching; lengths of millions of tokens take minutes", file=sys.stderr)
    ((_, low, high, critical, certificate),) = bound.smallest(pairs, [args.length])
    result = {name: vars(args)[name] for name in ("length", "head_dim", "rotary_fraction")}
    result |= {"low": low, "high": high}
    if bound.is_always_feasible(pairs):
        lines = [f"every base has B_m >= 0 at every distance ({_ALWAYS.partition(': ')[2]})"]
    elif not certificate:
        lines = [f"no base is too small: {high:.10g} has B_m >= 0 below {args.length:,} tokens"]
    else:
        lines = [
            f"base {high:.10g} is the smallest with B_m >= 0 below {args.length:,} tokens",
            f"  [{low!r}, {high!r}]",
            f"  below: infeasible, proved on {counted(len(certificate), 'intervals')} of ln(base)",
            "  at the upper end: B_m > 0 at every distance; "
            f"B_{critical} is the last to rise above 0",
            f"  rounded up: {round_up(pairs, high, args.length)} (feasible at every distance)",
        ]
    if args.stable or args.intervals:
        search = functools.partial(bound.intervals, pairs, args.length, on_base=_print_base(high))
        ((stable, _),) = search(last=True).feasible
        result |= {"stable": stable} if args.stable else {}
        if stable > 1:
            lines += [f"every base above {stable:.10g} has it too"]
    if args.intervals:
        intervals = search(high).feasible
        result["intervals"] = to_json(intervals)
        lines += [f"feasible intervals of the base ({len(intervals)}):"]
        lines += [f"  {low!r} to {high!r}" for low, high in intervals]
    return result, "\n".join(lines)


def _print_base(last: float) -> Callable[[float], None]:
    """Return a function that prints how far a search has come, every ten seconds."""
    printed = time.monotonic()

    def print_base(base: float) -> None:
        nonlocal printed
        if time.monotonic() - printed >= _PRINT_EVERY:
            printed = time.monotonic()
            print(f"searched down to base {base:.6g}, of {last:.6g} at most", file=sys.stderr)

    return print_base


def round_up(pairs: bound.Pairs, base: float, length: int) -> str:
    """Return the shortest feasible decimal at or just above `base`."""
    for digits in range(2, 17):
        unit = 10.0 ** (math.floor(math.log10(base)) - digits + 1)
        text = f"{math.ceil(base / unit) * unit:.{digits}g}"
        # Rounding by more than 5% would give a misleading answer.
        near = max(base, 1 + 1e-15) <= float(text) <= 1.05 * base
        if near and bound.is_feasible(pairs, math.log(float(text)), length):
            return text
    return repr(base)


def length_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Compute the first distance (tokens) with B_m = sum_i cos(m inv_freq_i) < 0."""
    result, inv_freq_LKR, _ = _read_frequencies(args)
    heads = decay.violations(inv_freq_LKR, args.limit)
    layers = [decay.latest(layer) for layer in heads]
    first = decay.latest(layers)
    checked = args.limit - 1 if first is None else first
    result |= {"first_violation": first, "checked_up_to": checked}
    if args.run or len(layers) > 1:
        result["layers"] = layers
    if len(heads[0]) > 1:
        result["heads"] = heads
    texts = [
        [
            _ALWAYS if decay.is_never_negative(inv_freq_R) else _format_first(m, args.limit)
            for inv_freq_R, m in zip(*layer, strict=True)
        ]
        for layer in zip(inv_freq_LKR, heads, strict=True)
    ]
    return result, _by_head(texts)


_ALWAYS = "none, proved for all distances: at least half of the pairs do not rotate"


def _by_head(texts: list[list[str]]) -> str:
    """Return the text of each head in a line; one line for all heads or layers that are alike."""
    if len(texts[0]) > 1:
        lines = [
            f"layer {index}, head {head}: {text}"
            for index, layer in enumerate(texts)
            for head, text in enumerate(layer)
        ]
    elif len(set(map(tuple, texts))) > 1:
        lines = [f"layer {index}: {text}" for index, (text,) in enumerate(texts)]
    else:
        lines = texts[0]
    return "\n".join(lines)


def _read_frequencies(
    args: argparse.Namespace, num_heads: int | None = None, length: int = 1
) -> tuple[dict, np.ndarray, int]:
    """Return the facts and frequencies `[L, K, R]` of a run or pattern, and the query heads."""
    if args.run:
        # Imported here, so that the other commands start without jax.
        from ropewalk.experiment.items import check_newest_config
        from ropewalk.experiment.run import find_run

        run = find_run(args.run)
        check_newest_config(run)
        config = run.config_at(max(run.steps(), default=0))
        result = {"run": str(args.run), "head_dim": config.model.head_dim}
        inv_freq_LKR = config.model.position_table(config.data.context_length).inv_freq
        return result, inv_freq_LKR, config.model.num_heads
    if args.rotary and args.rotary_fraction != 1:
        raise ValueError("with --rotary, write rotary_fraction=... in the expression")
    pattern = rotary.parse_pattern(args.rotary) if args.rotary else None
    pattern = pattern or Rope(base=args.base, rotary_fraction=args.rotary_fraction)
    layers = pattern if isinstance(pattern, tuple) else (pattern,)
    most = max(len(layer) if isinstance(layer, tuple) else 1 for layer in layers)
    inv_freq_LKR = [
        [head.at_length(length).inv_freq(args.head_dim) for head in layer]
        for layer in rotary.expand_pattern(pattern, len(layers), num_heads or most)
    ]
    result = {"rotary": rotary.expression(pattern), "head_dim": args.head_dim}
    return result, np.array(inv_freq_LKR), num_heads or most


def _format_first(first: int | None, limit: int) -> str:
    return f"> {limit - 1}" if first is None else str(first)


# --- positions -----------------------------------------------------------------------------------


def positions_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Compute how well a head tells a key from an equal one that is some tokens farther away.

    step: B_0 - B_apart, the mean square change of a score if phases are independent, and its limit
    as the base grows. inversions: distances at which the farther key has the larger B_m.
    separation: what the best weights attain at all distances up to the length, in standard
    deviations of a key that does not match. See docs/theory.md.
    """
    result, inv_freq_LKR, _ = _read_frequencies(args, length=args.length)
    unique_NR, index_LK = np.unique(
        inv_freq_LKR.reshape(-1, inv_freq_LKR.shape[-1]), axis=0, return_inverse=True
    )
    answers = [positions.tell_apart(inv_freq, args.length, args.apart) for inv_freq in unique_NR]
    index_LK = index_LK.reshape(inv_freq_LKR.shape[:2])
    best = max(answers, key=lambda answer: answer.separation)
    result |= {"length": args.length, "apart": args.apart} | best._asdict()
    if index_LK.size > 1:
        result["heads"] = [[answers[i]._asdict() for i in layer] for layer in index_LK]
    return result, _by_head([[_format_positions(answers[i]) for i in layer] for layer in index_LK])


def _format_positions(answer: positions.Positions) -> str:
    text = (
        f"step {answer.step:.6g} ({answer.limit:.6g} as the base grows), "
        f"inversions at {answer.inversions:,} of {answer.distances:,} distances"
    )
    if answer.undecided:
        text += f" ({answer.undecided:,} are equal or undecided)"
    return f"{text}, separation {answer.separation:.6g} (upper bound {answer.certificate:.6g})"


# --- capability ----------------------------------------------------------------------------------


def capability_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Compute how well the heads of a layer can distinguish keys up to a length.

    D_H, the maximum over all weights and phases at the worst distance from 1 to the length, in
    standard deviations of a key that does not match: exact for one head; for several heads, the
    value that a partition of the distances attains. If layers differ, the best layer counts.
    Windows and masked distances of a run do not count. See docs/theory.md.
    """
    if args.run and args.heads is not None:
        raise ValueError(
            "--heads is not allowed with a run, which has its own number of heads: omit it"
        )
    result, inv_freq_LKR, heads = _read_frequencies(args, args.heads, args.length)
    inv_freq_LNR = capability.query_head_frequencies(inv_freq_LKR, heads)
    unique_LNR, index_L = np.unique(inv_freq_LNR, axis=0, return_inverse=True)
    capabilities = [capability.capability(heads_NR, args.length) for heads_NR in unique_LNR]
    layers = [capabilities[index] for index in index_L.ravel()]
    facts = [
        {"capability": layer.value, "certificate": layer.certificate, "partition": layer.partition}
        for layer in layers
    ]
    best = int(np.argmax([layer.value for layer in layers]))
    result |= {"heads": heads, "length": args.length} | facts[best]
    lines = [_format_capability(layer) for layer in layers]
    if len(layers) > 1:
        result["layers"] = facts
        lines = [f"layer {index}: {line}" for index, line in enumerate(lines)]
    if args.others is not None:
        pairs = [(heads_NR, args.length) for heads_NR in unique_LNR]
        allowed = capability.bound_layers(pairs, num_others=args.others)
        result |= {"num_others": args.others, "needed": allowed.needed}
        result |= {"l50": allowed.l50, "beyond": allowed.beyond}
        lines.append(
            f"accuracy .5 among {args.others} other keys needs {allowed.needed:.4g}: "
            f"D_H allows L50 {allowed} tokens"
        )
    if args.out:
        from ropewalk.theory import show  # late: matplotlib is slow to import

        show.save(show.draw_capabilities(inv_freq_LNR[best], args.length, args.others), args.out)
        result["figure"] = str(args.out)
        lines.append(f"figure: {args.out}")
    return result, "\n".join(lines)


def _format_capability(result: capability.Capability) -> str:
    if result.certificate is not None:
        return f"{result.value:.6g} (upper bound over all weights: {result.certificate:.6g})"
    parts = map(capability.format_runs, result.partition)
    lines = (f"  head {head}: {part}" for head, part in enumerate(parts))
    return "\n".join([f"at least {result.value:.6g}, with these distances of each head", *lines])


# --- table, models, curve ------------------------------------------------------------------------


def table_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Compare the papers' smallest bases with the certified ones."""
    # Both papers have head_dim 128 only.
    papers = (published.MEN_2024, published.SU_2024) if args.head_dim == 128 else ({}, {})
    rows = []
    for answer in bound.smallest(bound.pairs_of(args.head_dim), args.lengths):
        men, su = (paper.get(answer.length) for paper in papers)
        row = answer._asdict()
        row["intervals_proved"] = len(row.pop("certificate"))
        rows.append(
            row
            | {
                "asymptotic": answer.length / published.CI_ZERO,
                "men_2024": men,
                "men_above_ours": None if men is None else men / answer.high - 1,
                "su_2024": su,
                "su_agrees": None if su is None else su == float(f"{answer.high:.1e}"),
            }
        )
    if args.figure:
        from ropewalk.theory import show  # late: matplotlib is slow to import

        show.save(show.draw_smallest_bases(rows), args.figure)
    fits, laws = {}, []
    for name, who in (("high", "certified"), ("men_2024", "Men et al.")):
        points = np.log([(row["length"], row[name]) for row in rows if row[name]])
        fits[name] = None
        if len(points) > 1:  # least squares of logarithms
            x, y = points.T
            power, log_factor = np.polyfit(x, y, 1)
            fits[name] = float(np.exp(log_factor)), float(power)
            laws.append(f"{who} {np.exp(log_factor):.4f} L^{power:.3f}")
    table = format_table(
        [],
        ["length", "certified", "m*", "intervals", "L/x0", "Su 2024", "Men et al.", "difference"],
        map(_table_line, rows),
        title=f"Smallest base with B_m >= 0 below a length, head_dim {args.head_dim}",
        caption="Every smaller base is infeasible, proved on this number of intervals of ln(base),"
        " each by one distance m. At the certified base, B_m >= 0 at every distance. m*: the last"
        " distance to rise above 0. L/x0: the estimate for infinitely many pairs.",
    )
    note = "The law of Men et al., Figure 1, as a fit of ln(base) to ln(L): " + ", ".join(laws)
    if fits["men_2024"]:
        note += (
            ". Their bases come from a search on a grid, which steps over narrow feasible"
            " intervals, so the exponent depends on the grid"
        )
    return {"head_dim": args.head_dim, "rows": rows, "fits": fits}, f"{table}\n{note}."


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
    """Audit the rotation of published open models; see `audit` for the columns."""
    names = [model.name for model in published.OPEN_MODELS]
    for name in args.names:
        if name not in names:
            raise ValueError(f"unknown model {name!r}; {nearest(name, names)}")
    if not has_transformers():
        raise ValueError("install transformers, which measures these models: pip install '.[hf]'")
    models = [m for m in published.OPEN_MODELS if m.name in (args.names or names)]
    rows = [
        {"model": model.name, "source": model.source, **group}
        for model in models
        for group in audit.audit(audit.read_layers(model.config))["groups"]
    ]
    return {"models": rows}, audit.as_rows(rows)


def audit_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Audit a published model's rotary settings, from its config alone.

    For each kind of layer: the frequencies as the model's code computes them, the first distance
    with B_m < 0 next to the claimed context, the certified smallest base, and the pairs that never
    complete a cycle. Needs no weights.
    """
    facts = audit.audit(audit.read_model(args.path))
    return facts, audit.as_text(facts, args.path.name)


def curve_command(args: argparse.Namespace) -> tuple[dict, str]:
    """Draw B_m over distance, or the upper bound of attention scores (Men et al. 2024, Eq. 14)."""
    variants = [*(Rope(base=base) for base in args.base), *map(rotary.parse, args.rotary)]
    if not variants:
        raise ValueError("no curve to draw: give --base 1e4,1e6 or --rotary EXPR (repeatable)")
    bound.check_length(args.length)
    at_length = {rotary.expression(v): v.at_length(args.length) for v in variants}
    curves = {name: variant.inv_freq(args.head_dim) for name, variant in at_length.items()}
    if args.bound == "attention":
        name = "relative_bound"
        ends = np.array([args.length - 1, 0])
        bounds = {curve: decay.attention_bound(vector, ends) for curve, vector in curves.items()}
        values = {curve: float(last / first) for curve, (last, first) in bounds.items()}
        lines = [f"{x:.3f} of the bound at distance 0  {curve}" for curve, x in values.items()]
    else:
        name = "first_violation"
        values = {curve: decay.first_violation(x, args.length) for curve, x in curves.items()}
        lines = [f"{_format_first(x, args.length)}  {curve}" for curve, x in values.items()]
    from ropewalk.theory import show  # late: matplotlib is slow to import

    show.save(show.draw_curves(curves, args.length, args.bound), args.out)
    result = {"figure": str(args.out), "length": args.length, name: values}
    return result, "\n".join([*lines, f"figure: {args.out}"])


def _short(length: int) -> str:
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if length % size == 0:
            return f"{length // size}{unit}"
    return f"{length:,}"


# --- the command line ----------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    head = Parser(add_help=False)
    text = "features of a head, even (default: 128)"
    head.add_argument("--head-dim", type=int, default=128, help=text)
    share = Parser(add_help=False)
    text = "share of the head that is rotated"
    share.add_argument("--rotary-fraction", type=float, default=1.0, help=text)

    variant = {"type": expression, "metavar": "EXPR"}

    def add(function, *parents):
        """Add the command of a function, with its name and docstring."""
        name, text = function.__name__.removesuffix("_command"), inspect.cleandoc(function.__doc__)
        summary = text.partition("\n")[0].rstrip(".")
        command = commands.add_parser(name, help=summary, description=text, parents=parents)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.set_defaults(function=function)
        return command

    command = add(show_command)
    command.epilog = f"variants: {', '.join(sorted(rotary.variants()))}"
    option, text = command.add_argument, "name(parameter=value,...)"
    option("what", nargs="+", type=_config_or_variant, metavar="CONFIG_OR_EXPR", help=text)
    option("--head-dim", type=at_least(1), metavar="D", help="features of a head, even")
    text = "context in tokens; after a comma a longer one, to count the pairs with new angles there"
    option("--length", type=_lengths, metavar="L[,LONGER]", help=text)
    text = "draw the wavelengths, or the cosine of the slowest pair up to the longer context"
    option("--plot", type=figure_path, metavar="FILE.png", help=text)
    add(cookbook_command)

    option = add(bound_command, head, share).add_argument
    option("--length", type=tokens, required=True, help="tokens: 131072 or 128k")
    option("--stable", action="store_true", help="also the base above which every base is feasible")
    option("--intervals", action="store_true", help="also every feasible interval")

    source = Parser(add_help=False, parents=[head, share])
    option = source.add_mutually_exclusive_group(required=True).add_argument
    option("--base", type=float, help="plain RoPE with this base")
    text = "a variant, or a pattern over layers and heads: '[[rope(base=10),nope]]'"
    option("--rotary", **variant, help=text)
    option("run", nargs="?", type=Path, help="a run directory: the heads of each layer")

    text = "distances below this are tested (default: 2^31)"
    add(length_command, source).add_argument("--limit", type=tokens, default=2**31, help=text)

    option = add(positions_command, source).add_argument
    option("--length", type=tokens, default=512, help="longest distance, tokens (default: 512)")
    option("--apart", type=at_least(1), default=1, help="tokens between the keys (default: 1)")

    command = add(capability_command, source)
    option = command.add_argument
    option("--heads", type=at_least(1), help="query heads of a layer (default: 1)")
    option("--length", type=tokens, required=True, help="tokens: 4096 or 4k")
    text = "also the L50 that D_H allows among this number of keys that do not match"
    option("--others", type=int, metavar="N", help=text)
    text = "also draw it against length, for 1, 2, 4, ... heads: FILE.png, .svg or .pdf"
    option("--out", type=figure_path, help=text)

    option = add(table_command, head).add_argument
    text = "default: 1k to 1M"
    option("--lengths", type=tokens, nargs="+", default=published.LENGTHS, help=text)
    option("--figure", type=figure_path, help="also draw it: FILE.png, .svg or .pdf")

    text = "a config.json or its folder"
    add(audit_command).add_argument("path", type=Path, metavar="CONFIG_JSON|FOLDER", help=text)

    option = add(models_command).add_argument
    option("names", nargs="*", metavar="NAME", help="default: all")

    option = add(curve_command, head).add_argument
    option("--base", type=_bases, default=[], help="comma list of bases of plain RoPE")
    option("--rotary", **variant, action="append", default=[], help="any variant; repeatable")
    option("--length", type=tokens, default=4096, help="tokens (default: 4096)")
    text = "b_m (default), or attention: the upper bound of attention scores"
    option("--bound", choices=("b_m", "attention"), default="b_m", help=text)
    text = "FILE.png, .svg or .pdf (default: %(default)s)"
    option("--out", type=figure_path, default=Path("curve.png"), help=text)
    return parser


def main() -> None:
    """Run the command line and print one result."""
    parser = _parser()
    args = parser.parse_args()
    status = Console(stderr=True).status("computing") if sys.stderr.isatty() else nullcontext()
    with parser.refusing(ValueError, ArithmeticError, OSError), status:
        result, text = args.function(args)
    print_text(json.dumps(result) if args.json else text)


if __name__ == "__main__":
    exit_with(main)
