"""results.csv: the numbers of the page, one line per member, variant, task and length.

If a member has several seeds, each retrieval task has one more line per seed. Numbers that do not
exist for a task are empty.

    member            label on the page
    task              expression of the task
    kind              retrieval, score, accuracy or likelihood
    length            context length of the evaluation, tokens
    schedule          variant of the evaluation relative to training; "trained": that of training
    rotary            full expression of the variant of the evaluation
    trained_rotary    variant of training
    base              RoPE base of training; empty for windows, masked distances, and no single base
    trained_length    tokens of a training row
    step              checkpoint
    seed              seed of the initialization; empty: several seeds
    data_seed         seed of the rows; empty: several seeds
    seeds             number of seeds in the line
    documents         number of documents per seed
    answers           number of answers, all seeds
    score             share of correct answers: retrieval, mean over distances; accuracy, of tokens
    score_low, score_high    95% interval (retrieval); empty for one seed of several
    chance            score of a guess
    ceiling           accuracy at short distances
    ceiling_low, ceiling_high    its 95% interval
    verdict           of L50, as in docs/evaluation.md: MEASURED, UNDETERMINED, TOO_FEW_ANSWERS,
                      LOW_CEILING, NOT_LEARNED, or "> longest" or "< shortest" distance tested
    documents_needed  documents that would be enough, if answers are too few; else empty
    l50, l50_low, l50_high    tokens, with the 95% interval; 0 and inf if it extends beyond the
                      distances tested; empty without an effective context. If undetermined, the
                      interval only. One seed of several: without an interval
    l85, l85_low, l85_high    the same where accuracy is 0.85 of the way from chance to ceiling
    worst, worst_low, worst_high    accuracy of the worst bin (an eighth of an octave, or wider to
                      have 30 trials), with the 95% interval of the minimum accuracy over bins
    worst_first, worst_last    its distances, tokens
    dip, dip_distance    lowest accuracy before a significant (95%) recovery, and its distance,
                      tokens; empty without. With a dip, L50 alone does not describe the curve
    revival, revival_distance    accuracy after the recovery, and its distance, tokens
    floor             accuracy at all distances beyond the first fall
    nll               nats per token
    perplexity        exp(nll)
    bits_per_byte     comparable between tokenizers
    word_perplexity   the same; empty if tokens have less than two bytes on average
    book_perplexity, window_mean_nll, context_gain, context_gain_length, first_loss,
                      first_loss_error    specific to one task: see its file in evals/tasks;
                      `columns` of other tasks come last
    theory_length     first distance with B_m < 0 for the variant of the evaluation, tokens
    quarter_period, full_period    of its slowest pair that rotates, tokens
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate import summaries
from ropewalk.model import rotary as rotary_lib
from ropewalk.reporting import columns
from ropewalk.reporting.measurements import Measurement
from ropewalk.reporting.members import Member

COLUMNS = (
    *("member", "task", "kind", "length", "schedule", "rotary", "trained_rotary", "base"),
    *("trained_length", "step", "seed", "data_seed", "seeds", "documents", "answers"),
    *("score", "score_low", "score_high", "chance", "ceiling", "ceiling_low", "ceiling_high"),
    *("verdict", "documents_needed", "l50", "l50_low", "l50_high", "l85", "l85_low", "l85_high"),
    *("dip", "dip_distance", "revival", "revival_distance", "floor"),
    *("worst", "worst_low", "worst_high", "worst_first", "worst_last"),
    *("nll", "perplexity", "bits_per_byte", "word_perplexity", "book_perplexity"),
    *("window_mean_nll", "context_gain", "context_gain_length", "first_loss", "first_loss_error"),
    *("theory_length", "quarter_period", "full_period"),
)
_INTERVALS = [name for name in COLUMNS if name.endswith(("_low", "_high"))]


def to_csv(members: Sequence[Member]) -> str:
    """Return the file's text, numbers with six significant digits."""
    return write_csv(line for member in members for line in make_lines(member))


def write_csv(lines: Iterable[dict[str, Any]]) -> str:
    """Return lines of `make_lines` as CSV, numbers with six significant digits."""
    lines = list(lines)
    extra = dict.fromkeys(name for line in lines for name in line)  # columns of other tasks
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, dict.fromkeys([*COLUMNS, *extra]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _format_cell(value) for name, value in line.items()})
    return buffer.getvalue()


def _format_cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return value


def make_lines(member: Member) -> Iterator[dict[str, Any]]:
    """Yield the values of each line by column; columns that do not apply are absent."""
    for measured in member.measurements:
        estimate = measured.estimate if measured.kind == "retrieval" else None
        line = _common_columns(member, measured, measured.rows) | measured.numbers
        yield line | columns.numbers(measured.theory, estimate) | dict(measured.task_columns)
        by_seed = measured.by_seed if estimate and estimate.num_seeds > 1 else {}
        for seed, estimate_of_seed in by_seed.items():
            rows = rows_lib.select(measured.rows, seed=seed)
            line = _common_columns(member, measured, rows)
            line |= {"score": measured.kind_info.value(rows)}
            line |= columns.numbers(measured.theory, estimate_of_seed)
            yield line | dict.fromkeys(_INTERVALS, math.nan)


def format_share(rows: rows_lib.Rows | None, column: str = "first_token_correct") -> str:
    """Return the percentage of a column, with its 95% interval over documents."""
    if rows is None:
        return "–"
    share, low, high = (100 * value for value in summaries.share(rows, column=column))
    return f"{share:.1f} [{low:.1f}, {high:.1f}]"


def _common_columns(member: Member, measured: Measurement, rows: rows_lib.Rows) -> dict[str, Any]:
    """Return the columns of all lines; a line has some of the measurement's rows."""
    numbers = np.unique(rows["seed"]).tolist()
    initial, data = (set(pair) for pair in zip(*(member.seeds[n] for n in numbers), strict=True))
    # Seeds of initialization and rows are named if all seeds of the line share them.
    shared = {"seed": initial, "data_seed": data}
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
        **{name: seeds.pop() for name, seeds in shared.items() if len(seeds) == 1},
        "seeds": len(numbers),
        "documents": len(np.unique(rows["document"])),
        "answers": len(rows["task"]),
        "chance": float(rows["chance"][0]),
    }
