"""`python -m model.rotary show ...`: what a schedule's frequencies are, before money is spent."""

import argparse
import dataclasses
import json
import math
import os
import sys

import numpy as np

from model import rotary
from model.rotary.base import Rotary, geometric_inv_freq
from model.rotary.p_rope import PRope
from settings.expressions import nearest, split_commas

HEAD_DIM, LENGTH = 128, 4096
EPILOG = f"""\
examples:
  python -m model.rotary show "rope(base=1e4)"
  python -m model.rotary show "yarn(base=1e4,factor=8,original_context_length=256)" --length 2048
  python -m model.rotary show demo --plot wavelengths.png     # every member of a config's sweep

A config brings its own head and context; an expression has {HEAD_DIM} features and {LENGTH} tokens.
schedules: {", ".join(sorted(rotary.schedules()))}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A schedule seen over a context of `length` tokens.

    Attributes:
      name: its expression.
      inv_freq: float64 `[head_dim // 2]`, radians per token, zeros for pairs at rest.
      bands: of each pair "kept", "ramp" or "interpolated" against the schedule's own base
        unstretched, "rest" if it does not turn, or "" where the schedule has no base.
      stretch: how many times slower each pair is than at that base; nan where there is none.
      first_negative: the first distance m < length at which sum_i cos(m inv_freq_i) < 0, or None.
    """

    name: str
    head_dim: int
    length: int
    rotary_dim: int
    inv_freq: np.ndarray
    logit_scale: float
    bands: list[str]
    stretch: np.ndarray
    first_negative: int | None
    warnings: list[str]

    @property
    def wavelength(self) -> np.ndarray:
        """Tokens per turn; inf for a pair at rest."""
        with np.errstate(divide="ignore"):
            return 2 * np.pi / self.inv_freq

    @property
    def turns(self) -> np.ndarray:
        """Turns completed within `length` tokens."""
        return self.length * self.inv_freq / (2 * np.pi)


def first_negative(inv_freq: np.ndarray, length: int) -> int | None:
    """The first distance m < `length` with sum_i cos(m inv_freq_i) < 0 (Men et al. 2024, Eq. 17).

    A plain float64 scan: enough for a warning. `theory` has the exact one.
    """
    chunk = 4096
    for start in range(0, length, chunk):
        distances = np.arange(start, min(start + chunk, length))
        negative = np.flatnonzero(np.cos(np.outer(distances, inv_freq)).sum(axis=1) < 0)
        if negative.size:
            return int(distances[negative[0]])
    return None


def against_unstretched(schedule: Rotary, head_dim: int) -> tuple[list[str], np.ndarray]:
    """Bands and stretch of `Report`, from the schedule's `base` and its factor."""
    inv_freq = schedule.inv_freq(head_dim)
    stretch = np.full(len(inv_freq), np.nan)
    parameters = vars(schedule)
    if "base" in parameters:
        series = head_dim if isinstance(schedule, PRope) else schedule.rotary_dim(head_dim)
        turning = np.count_nonzero(inv_freq)
        plain = geometric_inv_freq(parameters["base"], series)[:turning]
        stretch[:turning] = plain / inv_freq[:turning]
    factor = parameters.get("factor", math.inf)
    if "target_context_length" in parameters:
        factor = parameters["target_context_length"] / parameters["original_context_length"]

    def band(frequency: float, slower: float) -> str:
        if frequency == 0:
            return "rest"
        if math.isnan(slower):
            return ""
        if slower < 1 + 1e-9:
            return "kept"
        return "interpolated" if slower > factor * (1 - 1e-9) else "ramp"

    return [band(*pair) for pair in zip(inv_freq, stretch, strict=True)], stretch


def warnings_of(schedule: Rotary, head_dim: int, length: int, negative: int | None) -> list[str]:
    """What a person should know before training with this schedule at this length."""
    inv_freq = schedule.inv_freq(head_dim)
    rotary_dim = schedule.rotary_dim(head_dim)
    found = []
    share = schedule.rotary_fraction * head_dim
    if abs(share - rotary_dim) > 1e-6:
        found.append(
            f"rotary_fraction={schedule.rotary_fraction:g} of head_dim={head_dim} is {share:g} "
            f"features, not whole pairs: {rotary_dim} turn"
        )
    slow = np.flatnonzero((inv_freq > 0) & (length * inv_freq < 2 * np.pi))
    if slow.size:
        found.append(
            f"{slow.size} of {len(inv_freq)} pairs ({slow[0]} to {slow[-1]}) never complete a turn "
            f"within {length} tokens: farther out they meet angles never trained on"
        )
    if negative is not None:
        found.append(
            f"the sum of cosines is negative at distance {negative}, within {length} tokens: "
            "theory (Men et al. 2024) expects no retrieval from farther; take a larger base"
        )
    fast = np.flatnonzero(inv_freq > np.pi)
    if fast.size:
        found.append(
            f"{fast.size} pairs turn more than half a turn a token, as far as slower ones backwards"
        )
    error = length * inv_freq.max() * 2.0**-24
    if error > 1e-3:
        found.append(
            f"precision: position times frequency in float32 is up to {error:.1g} rad off at "
            f"{length} tokens; ropewalk's phases are not, but other programs' are"
        )
    return found


def report(schedule: Rotary, head_dim: int, length: int, num_resting: int = 0) -> Report:
    """Looks at `schedule` in a head of `head_dim` features over `length` tokens.

    Args:
      schedule: any; a dynamic one as it is for a row of `length` tokens.
      head_dim: features that the schedule sees, even.
      length: context in tokens.
      num_resting: pairs of the head that it does not see, since they never turn (MLA's).

    Raises:
      ValueError: if the schedule does not fit the head.
    """
    name = rotary.expression(schedule)
    schedule = schedule.at_length(length)
    inv_freq = schedule.inv_freq(head_dim)
    bands, stretch = against_unstretched(schedule, head_dim)
    negative = first_negative(np.append(inv_freq, np.zeros(num_resting)), length)
    return Report(
        name=name,
        head_dim=head_dim,
        length=length,
        rotary_dim=schedule.rotary_dim(head_dim) if inv_freq.any() else 0,
        inv_freq=inv_freq,
        logit_scale=schedule.logit_scale,
        bands=bands,
        stretch=stretch,
        first_negative=negative,
        warnings=warnings_of(schedule, head_dim, length, negative),
    )


def find(text: str) -> list[tuple[Rotary, int, int, int]]:
    """The schedules that `text` names, each with the last three arguments of `report`.

    Args:
      text: an expression, several with commas between, a pattern over layers, or the name of a
        config, whose sweep's members are all taken.
    """
    if "(" in text or text.startswith("["):
        patterns = map(rotary.parse_pattern, split_commas(text))
        entries = [(pattern, HEAD_DIM, LENGTH, 0) for pattern in patterns]
    else:
        # Here and not above: the folder knows nothing of what is built on it.
        from experiment import overrides

        configs = overrides.load_configs()
        if text in configs:
            members = configs[text].members or ((),)
            chosen = [overrides.apply(configs[text], member) for member in members]
            entries = []
            for config in chosen:
                head_dim = config.model.rope_head_dim
                num_resting = (config.model.head_dim - head_dim) // 2
                context_length = config.data.context_length
                entries.append((config.model.rotary, head_dim, context_length, num_resting))
        elif text in rotary.schedules():
            entries = [(rotary.parse(text), HEAD_DIM, LENGTH, 0)]
        else:
            names = {*configs, *rotary.schedules()}
            raise ValueError(f"unknown config or schedule {text!r}; {nearest(text, names)}")
    found = {}  # in order, each once: members of a sweep may differ in other things
    for pattern, *where in entries:
        for schedule in pattern if isinstance(pattern, tuple) else (pattern,):
            found[schedule, *where] = None
    return list(found)


def as_text(seen: Report) -> str:
    """The report as a table for people."""
    negative = seen.first_negative
    lines = [
        seen.name,
        f"  head_dim {seen.head_dim}, of which {seen.rotary_dim} turn; {seen.length} tokens; "
        f"logit scale {seen.logit_scale:g}; first negative sum of cosines: "
        + (f"none below {seen.length}" if negative is None else f"distance {negative}"),
        "",
        "  pair    inv_freq   wavelength       turns  slower by",
    ]
    rows = zip(seen.inv_freq, seen.wavelength, seen.turns, seen.stretch, seen.bands, strict=True)
    for pair, (frequency, wavelength, turns, stretch, band) in enumerate(rows):
        slower = "" if math.isnan(stretch) else f"{stretch:.4g}"
        numbers = f"{frequency:10.4g}  {wavelength:11.5g}  {turns:10.4g}"
        lines.append(f"  {pair:4d}  {numbers}  {slower:>9}  {band}".rstrip())
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in seen.warnings)])


def as_json(seen: Report) -> dict:
    """The report as JSON values; what is infinite or missing is null."""

    def listed(values: np.ndarray) -> list[float | None]:
        return [float(value) if math.isfinite(value) else None for value in values]

    plain = dataclasses.asdict(seen)
    arrays = {"inv_freq": seen.inv_freq, "stretch": seen.stretch}
    arrays |= {"wavelength": seen.wavelength, "turns": seen.turns}
    return plain | {name: listed(values) for name, values in arrays.items()}


def plot(reports: list[Report], file: str) -> None:
    """Draws wavelength against pair, one line a schedule, and the contexts across."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    if len({seen.name.partition("(")[0] for seen in reports}) == 1:  # one kind: a scale of bases
        colors = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(reports)))
    else:
        colors = mpl.colormaps["tab10" if len(reports) <= 10 else "tab20"](range(len(reports)))
    highest = max(max(seen.wavelength[seen.inv_freq > 0], default=1) for seen in reports)
    rest = 3 * max(highest, *(seen.length for seen in reports))
    # Later lines are thinner, so that those they cover still show.
    widths = np.linspace(3.5, 1, len(reports))
    for seen, color, width in zip(reports, colors, widths, strict=True):
        # The depth in the head as a share, so that heads of several sizes compare.
        depth = np.arange(len(seen.inv_freq)) / len(seen.inv_freq)
        label = seen.name if len(seen.name) <= 60 else seen.name[:57] + "..."
        turns = seen.inv_freq > 0
        if turns.any():
            axes.plot(
                depth[turns], seen.wavelength[turns], ".-", color=color, lw=width, label=label
            )
            label = None
        if not turns.all():
            still = depth[~turns]
            height = np.full(len(still), rest)
            axes.plot(still, height, "^", color=color, fillstyle="none", ms=4, label=label)
    for length in sorted({seen.length for seen in reports}):
        axes.axhline(length, color="0.4", lw=1, ls="--")
        axes.annotate(f"context, {length} tokens", (0, length), (0, 3), textcoords="offset points")
    if any((seen.inv_freq == 0).any() for seen in reports):
        axes.annotate("△ does not turn", (0, rest), (0, -12), textcoords="offset points")
    axes.set_yscale("log")
    axes.set_xlabel("pair, as a share of the head (fastest at 0)")
    axes.set_ylabel("wavelength (tokens per turn)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside lower center", fontsize=8, frameon=False, ncols=2 if len(reports) > 3 else 1
    )
    figure.savefig(file, dpi=150)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line, no usage: scripts and people read the reason, `--help` teaches the rest."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def main() -> None:
    """Parses the command line, prints the reports."""
    parser = _Parser(prog="python -m model.rotary", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser(
        "show",
        help="wavelengths, turns and warnings of schedules",
        description="Prints, for each pair of each schedule, its wavelength, the turns it completes"
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
        help='print one JSON object; of several schedules, {"schedules": [...]}',
    )
    show.add_argument("--plot", metavar="FILE.png", help="draw wavelength per pair, all in one")
    args = parser.parse_args()
    try:
        for flag, value in (("--head-dim", args.head_dim), ("--length", args.length)):
            if value is not None and value < 1:
                raise ValueError(f"{flag} must be at least 1, got {value}")
        reports = [
            report(schedule, args.head_dim or head_dim, args.length or length, num_resting)
            for text in args.what
            for schedule, head_dim, length, num_resting in find(text)
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
