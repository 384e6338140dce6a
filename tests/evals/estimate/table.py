"""Coverage of intervals: the tables of docs/evaluation.md.

usage: python -m tests.evals.estimate.table [DRAWS] [DOCUMENTS]

The first table is of the estimator, against known curves of accuracy by distance; the second of
differences of loss, copy gains and reaches of language models, by number of documents.

Questions are those that `evaluate.py` asks by default: documents of the task kv at 128 tokens, 64
unless stated. Luck is correlated by .2 within a document (a Gaussian copula). The truth is the
first distance at which accuracy is at most half-way from the ceiling to chance, the mean of
accuracy over all distances, and the least mean of accuracy over the questions of a bin.
"""

import collections
import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from ropewalk.data.tasks.kv import Kv
from ropewalk.evals.estimate import effective_context, summaries
from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.evals.estimate.effective_context import Estimate
from ropewalk.evals.estimate.trials import Trials
from ropewalk.studies.language_model import measures
from tests.evals.estimate.simulated import CHANCE, interval_octaves, logistic

LENGTH, LONGEST = 128, 125

Accuracy = Callable[[np.ndarray], np.ndarray]  # by distance in tokens


def between(low: int, high: int, accuracy: float, rest: Accuracy = np.ones_like) -> Accuracy:
    """Return an accuracy from `low` to `high`, ends included, and another curve elsewhere."""
    return lambda m: np.where((m >= low) & (m <= high), accuracy, rest(m))


def step(first: int, ceiling: float = 1.0) -> Accuracy:
    """Return `ceiling` below a distance, and chance from there on."""
    return lambda m: np.where(m < first, ceiling, CHANCE)


def flat(accuracy: float) -> Accuracy:
    """Return the same accuracy at every distance."""
    return lambda m: np.full(np.shape(m), accuracy)


CURVES = {
    "step at 8": step(8),
    "step at 64": step(64),
    "fall at 40, slope 1": logistic(40, 1),
    "fall at 40, slope 6": logistic(40, 6),
    "ceiling .95, fall at 40": logistic(40, 4, 0.95),
    "ceiling .7, step at 40": step(40, 0.7),
    "dip to .45 at 5-8": between(5, 8, 0.45),
    "dip to .45 at 28-33": between(28, 33, 0.45),
    "dip to .1 at 28-33": between(28, 33, 0.1),
    "shelf .55 at 20-80": between(20, 80, 0.55, step(20)),
    "shelf .55 at 55-80": between(55, 80, 0.55, step(55)),
    "shelf .55 at 30-50": between(30, 50, 0.55, step(30)),
    "shelf .6 at 50-80": between(50, 80, 0.6, step(50)),
    "shelf .5 at 30-50": between(30, 50, 0.5, step(30)),
    "shelf .45 at 40-60": between(40, 60, 0.45, step(40)),
    "shelf .55 from 20 on": between(20, 128, 0.55),
    "step at 100": step(100),
    "step at 110": step(110),
    "step at 120": step(120),
    "no fall, .95": flat(0.95),
    "no fall, 1.00 to .75": between(40, 128, 0.75),
}


def _tokens(random: np.random.Generator, low: float, high: float) -> int:
    """Return a distance in tokens, log-uniform."""
    return round(np.exp(random.uniform(np.log(low), np.log(high))))


def _shelf(random: np.random.Generator, octaves: tuple[float, float]) -> Accuracy:
    first = _tokens(random, 8, 100 / 2 ** octaves[1])
    last = round(first * 2 ** random.uniform(*octaves))
    return between(first, last, random.uniform(0.35, 0.75), step(first))


def _dip(random: np.random.Generator) -> Accuracy:
    first = _tokens(random, 3, 50)
    last = round(first * 2 ** random.uniform(0.2, 0.8))
    rest = step(_tokens(random, 1.3 * last, 130))
    return between(first, last, random.uniform(0.05, 0.48), rest)


# A curve for every draw, so that no rule can be fitted to a few of them.
KINDS: dict[str, Callable[[np.random.Generator], Accuracy]] = {
    "steps": lambda r: step(_tokens(r, 4, 80)),
    "slow falls": lambda r: logistic(_tokens(r, 10, 50), r.uniform(1, 6)),
    "ceilings": lambda r: logistic(_tokens(r, 12, 50), r.uniform(3, 6), r.uniform(0.93, 1)),
    "dips": _dip,
    "shelves below an octave": lambda r: _shelf(r, (0.25, 1)),
    "shelves of 1 to 2 octaves": lambda r: _shelf(r, (1, 2)),
    "late falls": lambda r: step(round(r.uniform(80, 126))),
}


@functools.cache
def questions(first: int, num_documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the document and the distance of each question of kv, int `[answers]`."""
    documents = []
    for number in range(first, first + num_documents):
        twice, _ = Kv().layout(LENGTH, np.random.default_rng(number))
        documents.append(twice[1] - twice[0] - 1)
    sizes = [len(distances) for distances in documents]
    return np.repeat(np.arange(num_documents), sizes), np.concatenate(documents)


def simulate(
    curve: Accuracy, random: np.random.Generator, *, documents: int = 64, rho: float = 0.2
) -> tuple[Trials, Trials]:
    """Return the counted answers of one seed to questions of kv, and their expectation."""
    document, distance = questions(int(random.integers(20)) * documents, documents)
    normal = np.sqrt(rho) * random.normal(size=documents)[document]
    luck = special.ndtr(normal + np.sqrt(1 - rho) * random.normal(size=len(document)))
    counts = {
        "seed": np.zeros_like(document),
        "document": document,
        "bin": fine_bin_number(distance),
        "questions": np.ones(len(document)),
    }
    ends = int(distance.min()), int(distance.max())
    answers, expected = (
        Trials.from_counts(counts | {"right": right}, distances=ends, chance=CHANCE)
        for right in ((luck < curve(distance)).astype(float), curve(distance))
    )
    return answers, expected


def truth(curve: Accuracy) -> float:
    """Return the first distance at which accuracy is at most half-way, tokens; inf if nowhere."""
    m = np.linspace(1, LONGEST, 200_001)
    below = curve(m) <= (float(curve(np.array(1.0))) + CHANCE) / 2
    return round(float(m[below.argmax()]), 2) if below.any() else np.inf


def is_covered(result: Estimate, distance: float) -> bool:
    """Return whether the interval holds the truth; a fall within a bin of its end is at its end."""
    if np.isnan(result.ci_low):  # too few answers: nothing is claimed
        return True
    if result.is_beyond:
        return distance > result.longest / 2 ** (1 / 8)
    return result.ci_low - 1e-3 <= distance <= result.ci_high + 1e-3


def line(
    kind: Callable[[np.random.Generator], Accuracy],
    draws: int,
    documents: int = 64,
    seed: int = 20240523,
) -> dict[str, float]:
    """Return the shares of verdicts, coverages and the median width of many estimates.

    Args:
      kind: returns the curve of a draw.
    """
    random = np.random.default_rng(seed)
    results, covered, means, worst = [], [], [], []
    for draw in range(draws):
        curve = kind(random)
        answers, expected = simulate(curve, random, documents=documents)
        result = effective_context.estimate_trials(
            answers,
            task="kv",
            lengths=(LENGTH, LENGTH),
            resamples=200,
            seed=draw,
        )
        results.append(result)
        covered.append(is_covered(result, truth(curve)))
        mean = curve(np.arange(1.0, LONGEST + 1)).mean()
        means.append(result.mean_accuracy_low <= mean <= result.mean_accuracy_high)
        bins = expected.with_min_trials(30).summed().summed()
        least = (bins.right / bins.questions).min()
        worst.append(result.worst.ci_low - 1e-9 <= least <= result.worst.ci_high + 1e-9)
    measured = [result for result in results if result.verdict == effective_context.MEASURED]
    shares = {
        "measured": len(measured) / draws,
        "beyond": np.mean([result.is_beyond for result in results]),
        "undetermined": np.mean([r.verdict == effective_context.UNDETERMINED for r in results]),
        "no L50": np.mean([not result.has_l50 for result in results]),
        "covered": np.mean(covered),
        "mean covered": np.mean(means),
        "worst covered": np.mean(worst),
        "octaves": np.median(list(map(interval_octaves, measured))) if measured else np.nan,
    }
    return {name: float(value) for name, value in shares.items()}


_CENTERS = 8 * 2 ** np.arange(0, 6, 0.5)  # lags, tokens
_SHARES = 1 / (1 + (_CENTERS / 100) ** 4)  # of the reference's copy gain of 2 nats
_COST = 0.05  # nats per token more than the reference


def language_model(documents: int, draws: int, seed: int = 0) -> dict[str, float]:
    """Return the shares of intervals of one seed that hold the truth, by measure.

    Losses differ by document with an exponential tail. A document has 16 passages at random lags,
    and its copy gains, of run and reference, vary by half of their size.
    """
    random, hits = np.random.default_rng(seed), collections.defaultdict(list)
    mean_gain = 2 * _SHARES.mean()
    truths = {"copy gain": mean_gain, "copy gain / reference's": mean_gain / 2}
    expected = [
        measures.Sums(x[None], x[None] ** 0, _CENTERS) for x in (2 * _SHARES, 0 * _SHARES + 2)
    ]
    truths["reach"] = measures.measure_half_lag(*expected, nearby=16).values[0]
    for _ in range(draws):
        costs = _COST + 0.2 * (random.exponential(size=documents) - 1)
        rows = {"document": np.arange(documents), "query": np.zeros(documents, int)}
        rows |= {"num_tokens": random.integers(100, 500, documents), "num_bytes": rows["query"]}
        cost = summaries.difference(rows | {"nll": costs}, rows | {"nll": 0 * costs})
        hits["difference of loss, tables"].append(abs(cost.mean - _COST) <= cost.half_width)

        passages = random.multinomial(16, np.full(len(_CENTERS), 1 / len(_CENTERS)), documents)
        count = 16.0 * passages
        size = 1 + 0.5 * random.normal(size=(documents, 1))
        run, reference = (
            measures.Sums(
                2 * share * size * count + np.sqrt(count) * random.normal(size=count.shape),
                count,
                _CENTERS,
            )
            for share in (_SHARES, 1)
        )
        tokens = rows["num_tokens"][:, None].astype(float)
        values = {
            "difference of loss, studies": (
                measures.measure_mean(measures.Sums(costs[:, None] * tokens, tokens, np.ones(1)))
            ),
            "copy gain": measures.measure_mean(run),
            "copy gain / reference's": measures.measure_ratio(run, reference),
            "reach": measures.measure_half_lag(run, reference, nearby=16),
        }
        for name, value in values.items():
            interval = measures.over_seeds([value], in_octaves=name == "reach")
            hits[name].append(interval.low <= truths.get(name, _COST) <= interval.high)
    return {name: float(np.mean(shares)) for name, shares in hits.items()}


def main(arguments: Sequence[str]) -> None:
    """Print the tables in Markdown."""
    draws, documents = (*map(int, arguments), *(200, 64)[len(arguments) :])
    by_documents = {n: language_model(n, draws) for n in (16, 60, 200)}
    print("| documents |", " | ".join(by_documents[16]), "|")
    print("|---" * (len(by_documents[16]) + 1) + "|")
    for number, hits in by_documents.items():
        print(f"| {number} |", " | ".join(f"{share:.3g}" for share in hits.values()), "|")
    print()
    lines = KINDS | {name: lambda _, curve=curve: curve for name, curve in CURVES.items()}
    heads = list(line(KINDS["steps"], 1))
    print("| accuracy |", " | ".join(heads), "|")
    print("|---" * (len(heads) + 1) + "|")
    for name, kind in lines.items():
        values = line(kind, draws, documents).values()
        print(f"| {name} |", " | ".join(f"{value:.3g}" for value in values), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
