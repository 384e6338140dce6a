"""results.csv: the numbers of the page, one line a member, variant, task and length.

Where a member has several seeds, a retrieval task has one more line for each of them. A cell is
empty where a number does not exist for its task.

    member            as on the page
    task              as an expression
    kind              retrieval, score, accuracy or likelihood
    length            context length of the evaluation, tokens
    schedule          evaluated with, relative to training; "trained" is the variant of training
    rotary            the same as a whole expression
    trained_rotary    variant of training
    base              RoPE base of training; empty for controls
    trained_length    tokens of a training row
    step              checkpoint
    seed              of the initialisation; empty: several seeds together
    data_seed         of the rows; empty: several together
    seeds             number of seeds in the line
    documents         a seed
    answers           all seeds
    score             share of right answers: retrieval, mean over distances; accuracy, of tokens
    score_low, score_high    of retrieval: its 95% interval; one seed of several: without one
    chance            score of a guess
    ceiling           accuracy at short distances
    verdict           MEASURED, NOT_LEARNED, "> longest" or "< shortest" distance asked, of L50
    l50, l50_low, l50_high    tokens, with the 95% interval; 0 and inf where it leaves what was
                      asked. One seed of several: without an interval
    l85, l85_low, l85_high    the same where accuracy is 0.85 of the way from chance to ceiling
    worst, worst_low, worst_high    accuracy of the worst bin (an eighth of an octave, or wider to
                      have 30 trials), with the 95% interval of the least accuracy of all bins
    worst_first, worst_last    its distances, tokens
    dip, dip_distance    lowest accuracy before it surely comes back, and where, tokens; empty where
                      it does not: with a dip, L50 alone does not describe the curve
    revival, revival_distance    what it comes back to, and where, tokens
    floor             accuracy at all distances beyond the first fall
    effective_length  longest context up to which the score exceeds 0.85 of that at the shortest
                      one evaluated, tokens; of all lengths of the task; 0 if none
    visual_edge       longest distance with half of the answers right, tokens; median over lengths
    nll               nats per token
    perplexity        exp(nll)
    bits_per_byte, word_perplexity    comparable between tokenizers
    book_perplexity, window_mean_nll, context_gain, context_gain_length, first_loss,
                      first_loss_error    what one task alone has to say: its file in evals/tasks,
                      or your own, whose `columns` come last
    theory_length     first distance with B_m < 0 of the variant evaluated with, tokens
    quarter_period, full_period    of its slowest pair that rotates, tokens
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evals import rows as rows_lib
from evals.estimate import summaries, thresholds
from evals.estimate.effective_context import Estimate
from model import rotary as rotary_lib
from reporting.measurements import Measurement
from reporting.members import Member

_OF_ESTIMATE = (
    *("ceiling", "verdict", "l50", "l50_low", "l50_high", "l85", "l85_low", "l85_high"),
    *("dip", "dip_distance", "revival", "revival_distance", "floor"),
)
_OF_WORST = {  # columns of its fields
    "accuracy": "worst",
    "ci_low": "worst_low",
    "ci_high": "worst_high",
    "low": "worst_first",
    "high": "worst_last",
}
_INTERVALS = [
    f"{name}_{end}" for name in ("l50", "l85", "worst", "score") for end in ("low", "high")
]
COLUMNS = (
    *("member", "task", "kind", "length", "schedule", "rotary", "trained_rotary", "base"),
    *("trained_length", "step", "seed", "data_seed", "seeds", "documents", "answers"),
    *("score", "score_low", "score_high", "chance"),
    *(*_OF_ESTIMATE, *_OF_WORST.values(), "effective_length", "visual_edge"),
    *("nll", "perplexity", "bits_per_byte", "word_perplexity", "book_perplexity"),
    *("window_mean_nll", "context_gain", "context_gain_length", "first_loss", "first_loss_error"),
    *("theory_length", "quarter_period", "full_period"),
)


def to_csv(members: Sequence[Member]) -> str:
    """The file's text; numbers with six significant digits."""
    found = [line for member in members for line in lines(member)]
    own = dict.fromkeys(name for line in found for name in line)  # of tasks, besides the common
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, dict.fromkeys([*COLUMNS, *own]), lineterminator="\n")
    writer.writeheader()
    for line in found:
        writer.writerow({name: _cell(value) for name, value in line.items()})
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return value


def lines(member: Member) -> Iterator[dict[str, Any]]:
    """Values by column, of those columns that exist for the line."""
    whole_task = _of_all_lengths(member)
    for measured in member.measurements:
        line = _common(member, measured)
        if measured.kind == "likelihood":
            line |= summaries.likelihoods(measured.rows)
        else:
            line["score"] = measured.value
            line |= whole_task[measured.task, measured.rotary]
        if measured.kind == "retrieval":
            line |= _of_estimate(measured.estimate)
        yield line | measured.own_columns
        if measured.kind == "retrieval" and len(measured.by_seed) > 1:
            for seed, estimate in measured.by_seed.items():
                rows = rows_lib.select(measured.rows, seed=seed)
                score = thresholds.mean_accuracy(rows)
                own = {"seeds": 1, "answers": len(rows["task"]), "score": score}
                own |= _seed(member, [seed]) | dict.fromkeys(_INTERVALS, math.nan)
                yield _common(member, measured) | _of_estimate(estimate) | own


def _common(member: Member, measured: Measurement) -> dict[str, Any]:
    rows = measured.rows
    return {
        "member": member.label,
        "task": measured.task,
        "kind": measured.kind,
        "length": measured.length,
        "schedule": measured.variant,
        "rotary": measured.rotary,
        "trained_rotary": rotary_lib.expression(member.config.model.rotary),
        "base": member.base,
        "trained_length": member.trained_length,
        "step": int(rows["step"][0]),
        **_seed(member, np.unique(rows["seed"]).tolist()),
        "seeds": len(np.unique(rows["seed"])),
        "documents": len(np.unique(rows["document"])),
        "answers": len(rows["task"]),
        "chance": float(rows["chance"][0]),
        "theory_length": measured.theory.first_violation,
        "quarter_period": measured.theory.quarter_period,
        "full_period": measured.theory.full_period,
    }


def _seed(member: Member, numbers: Sequence[int]) -> dict[str, int]:
    """Of a line about one seed, which one; of one about several, those that they share."""
    initial, rows = (set(pair) for pair in zip(*(member.seeds[n] for n in numbers), strict=True))
    found = {"seed": initial, "data_seed": rows}
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _of_estimate(estimate: Estimate) -> dict[str, Any]:
    fields = {"l50_low": "ci_low", "l50_high": "ci_high"}
    found = {name: getattr(estimate, fields.get(name, name)) for name in _OF_ESTIMATE}
    found |= {f"score_{end}": getattr(estimate, f"mean_accuracy_{end}") for end in ("low", "high")}
    return found | {name: getattr(estimate.worst, field) for field, name in _OF_WORST.items()}


def _of_all_lengths(member: Member) -> dict[tuple[str, str], dict[str, Any]]:
    """Effective lengths by (task, variant)."""
    found = {}
    for key in dict.fromkeys((m.task, m.rotary) for m in member.measurements):
        asked = [m for m in member.measurements if (m.task, m.rotary) == key]
        rows = rows_lib.concatenate([measured.rows for measured in asked])
        found[key] = {}
        if asked[0].kind in ("retrieval", "score"):
            found[key]["effective_length"] = thresholds.effective_length(rows).value or 0
        if asked[0].kind == "retrieval":
            found[key]["visual_edge"] = thresholds.visual_edge(rows)
    return found
