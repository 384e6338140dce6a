"""Growth of the reach with the base, and cost against the level of copying, after 40M tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ropewalk.model.rotary.rope import Rope
from ropewalk.studies.card import Card
from ropewalk.studies.language_model.measures import (
    LENGTH,
    NEARBY,
    REFERENCE,
    SHORTEST_LAG,
    Resampled,
    gains,
    losses,
    measure_difference,
    measure_half_lag,
    measure_ratio,
    over_seeds,
    runs_of,
)
from ropewalk.studies.rows import Row
from ropewalk.theory import decay

BASES: tuple[int, ...] = 10, 30, 100, 300, 1_000
GROWING = BASES[2:]  # base 30 copies too little for a reach (docs/language_model.md)
CARDS = "language_model_lags", "language_model_lag_seeds", "language_model_long"
HEAD_DIM = 64


class Run(NamedTuple):
    """One run after 40M tokens, compared with base 1e4 of its seed, device and tokenizer.

    Attributes:
      seed: also of its rows; runs of a card's seed are those of one device.
      level: copy gain at lags up to NEARBY tokens by that of the reference.
      reach: tokens.
      cost: nats per token.
    """

    card: str
    seed: int
    base: int
    level: Resampled
    reach: Resampled
    cost: Resampled

    @classmethod
    def of(cls, card: str, seed: int, base: int, row: Row, reference: Row) -> "Run | None":
        """Measure a run; None if it was not measured as its reference was."""
        gain, other_gain = gains(row), gains(reference)
        loss, other_loss = losses(row, LENGTH), losses(reference, LENGTH)
        if gain is None or other_gain is None or loss is None or other_loss is None:
            return None
        near = (item.within(SHORTEST_LAG, NEARBY) for item in (gain, other_gain))
        reach = measure_half_lag(gain, other_gain, nearby=NEARBY)
        cost = measure_difference(loss, other_loss)
        return cls(card, seed, base, measure_ratio(*near), reach, cost)


def find_runs(rows: Sequence[Row]) -> list[Run]:
    """Measure all runs after 40M tokens, by card, seed and base."""
    runs = []
    for card in CARDS:
        for seed, reference in sorted(runs_of(rows, card, REFERENCE).items()):
            for base in BASES:
                if row := runs_of(rows, card, f"base={base}").get(seed):
                    runs.append(Run.of(card, seed, base, row, reference))
    return [run for run in runs if run is not None]


# What each theory says the reach is proportional to.
THEORIES: dict[str, Callable[[int], float]] = {
    "square root of the base": lambda base: base**0.5,
    "B_m below .25 of its start": lambda base: _first_below(base, 0.25),
    "B_m < 0": lambda base: float(decay.first_violation(_inv_freq(base)) or np.inf),
    "quarter period of the slowest pair": lambda base: decay.quarter_period(_inv_freq(base)),
}


def _inv_freq(base: int) -> np.ndarray:
    return Rope(base=base).inv_freq(HEAD_DIM)


def _first_below(base: int, share: float) -> float:
    sums = decay.cosine_sum(_inv_freq(base), np.arange(10 * LENGTH))
    return float(np.flatnonzero(sums < share * sums[0])[0])


def reaches(runs: Sequence[Run], bases: Sequence[int] = GROWING) -> dict[int, list[Resampled]]:
    """Return the reaches of each seed that has all bases, in their order."""
    by_seed: dict[int, dict[int, Resampled]] = {}
    for run in runs:
        if run.card != "language_model_long":  # one base
            by_seed.setdefault(run.seed, {})[run.base] = run.reach
    return {
        seed: [found[base] for base in bases]
        for seed, found in sorted(by_seed.items())
        if found.keys() >= set(bases)
    }


def growth(seed: Sequence[Resampled]) -> Resampled:
    """Return the reach of the largest base by that of the smallest."""
    return seed[-1].map(np.divide, seed[0])


def exponent(seed: Sequence[Resampled]) -> Resampled:
    """Return the slope of log reach over log base, by least squares."""
    logs = np.log(GROWING) - np.mean(np.log(GROWING))
    weights = logs / (logs**2).sum()
    return seed[0].map(lambda *values: weights @ np.log(values), *seed[1:])


def error(octaves: np.ndarray, lengths: np.ndarray) -> float:
    """Return the rms error of the best multiple of `lengths`, octaves `[seeds, bases]`."""
    return float(np.std(octaves - np.log2(lengths)))


def theory_lines(runs: Sequence[Run]) -> Iterator[dict[str, str]]:
    """Yield what each theory says of the growth, and its errors, octaves rms."""
    by_seed = reaches(runs)
    octaves = np.log2([[reach.values[0] for reach in seed] for seed in by_seed.values()])
    is_new = np.array([seed == 0 for seed in by_seed])  # claims n
    more = reaches(runs, BASES[1:])
    more_octaves = np.log2([[reach.values[0] for reach in seed] for seed in more.values()])
    for name, length in THEORIES.items():
        lengths = np.array([length(base) for base in GROWING])
        line = {
            "theory": name,
            "at the bases": ", ".join(f"{tokens:.0f}" for tokens in lengths),
            "growth": f"{lengths[-1] / lengths[0]:.2f}",
            "one factor": f"{error(octaves, lengths):.2f}",
        }
        if 0 < is_new.sum() < len(is_new):
            constant = np.mean(octaves[~is_new] - np.log2(lengths))
            forecast = np.log2(lengths) + constant
            said = ", ".join(f"{tokens:.0f}" for tokens in 2**forecast)
            miss = np.sqrt(np.mean((octaves[is_new] - forecast) ** 2))
            line |= {"forecast of seed 0": said, "error": f"{miss:.2f}"}
        if len(more):
            lengths = np.array([length(base) for base in BASES[1:]])
            line["with base 30"] = f"{error(more_octaves, lengths):.2f}"
        yield line


def growth_lines(runs: Sequence[Run]) -> Iterator[dict[str, str]]:
    """Yield the reach of each base, their growth and the exponent, by seed and over seeds."""
    by_seed = reaches(runs)
    groups = {f"{seed}": [reaches] for seed, reaches in by_seed.items()}
    groups["1 to 3"] = [reaches for seed, reaches in by_seed.items() if seed]
    groups["all"] = list(by_seed.values())
    # Student's alone, without the documents that seeds share.
    groups["all, seeds alone"] = [[x.of_data() for x in seed] for seed in by_seed.values()]
    for name, several in groups.items():
        reach = (over_seeds([seed[i] for seed in several], in_octaves=True) for i in range(3))
        line = {f"base {base:,}": str(value) for base, value in zip(GROWING, reach, strict=True)}
        line["growth"] = str(over_seeds(list(map(growth, several)), in_octaves=True))
        line["exponent"] = str(over_seeds(list(map(exponent, several))))
        yield {"seed": name} | line


class Fit(NamedTuple):
    """Line of cost over level, nats, and how well it fits."""

    slope: float
    intercept: float
    correlation: float
    rms: float


def fit_cost(runs: Sequence[Run]) -> Fit:
    """Fit the cost of all runs by their levels."""
    level, cost = (np.array([getattr(run, x).values[0] for run in runs]) for x in ("level", "cost"))
    slope, intercept = np.polyfit(level, cost, 1)
    rms = np.sqrt(np.mean((cost - slope * level - intercept) ** 2))
    return Fit(slope, intercept, np.corrcoef(level, cost)[0, 1], rms)


def run_lines(runs: Sequence[Run]) -> Iterator[dict[str, str]]:
    """Yield the level, reach and cost of each run."""
    for run in runs:
        values = (over_seeds([item]) for item in (run.level, run.reach, run.cost))
        level, reach, cost = map(str, values)
        name = "0, H200" if run.card == "language_model_long" else f"{run.seed}"
        texts = {"level": level, "documents nearby": f"{run.level.documents}"}
        multiple = run.reach.values[0] / THEORIES["B_m < 0"](run.base)
        texts |= {"reach": reach, "times B_m < 0": f"{multiple:.1f}", "cost": cost}
        yield {"seed": name, "base": f"{run.base:,}"} | texts


def control_lines(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield level and reach of large bases after 10M tokens, by base 1e4 after 40M, on an H200."""
    references = runs_of(rows, "language_model_long", REFERENCE)
    members = {
        "base 10,000": ("language_model_seeds", REFERENCE),
        "base 1e6": ("language_model_variants", "base=1000000"),
        "a quarter rotated": ("language_model_variants", "quarter"),
        "a tenth rotated": ("language_model_variants", "tenth"),
    }
    for name, (card, member) in members.items():
        for seed, row in sorted(runs_of(rows, card, member).items()):
            if references and (run := Run.of(card, seed, 0, row, references[0])):
                level, reach = (over_seeds([item]) for item in (run.level, run.reach))
                yield {"model": name, "seed": f"{seed}", "level": str(level), "reach": str(reach)}


def forecast_lines(card: Card) -> Iterator[dict[str, str]]:
    """Yield the reach that each theory forecasts for the members of a card, tokens."""
    for member, config in card.configs().items():
        if not member.startswith("reference"):
            inv_freq_R = config.model.position_table(LENGTH).inv_freq[0, 0]
            first = decay.first_violation(inv_freq_R) or np.inf
            base = getattr(config.model.rotary, "base", np.nan)
            lengths = {
                "B_m < 0": first,
                "1.8 x B_m": 1.8 * first,
                "10 x sqrt(base)": 10 * base**0.5,
                ".43 x quarter period": 0.43 * decay.quarter_period(inv_freq_R),
            }
            texts = {n: "none" if np.isnan(x) else f"{x:,.0f}" for n, x in lengths.items()}
            yield {"member": member} | texts
