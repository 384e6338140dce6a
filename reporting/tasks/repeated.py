"""Su's table: shares of right tokens, at the trained length and beyond it."""

from collections.abc import Iterator, Sequence

import evals
from evals.tasks import repeated
from reporting.results import format_share
from reporting.task_view import Evaluated, TaskTable, TaskView

SECTION = "Tokens guessed right"
HEADS = {"trained": "repeated, lag T", "half": "repeated, lag T/2", "none": "not repeated"}
CAPTION = (
    "Percentage of next tokens that are the most likely token, ± 1.96 standard errors "
    "over documents: at the trained length T; beyond it, in the first T (T/2) tokens repeated; "
    "and beyond it, in the text as it is (Su Jianlin, kexue.fm/archives/9706)."
)


class Repeated(TaskView):
    """View of `evals.tasks.repeated`."""

    @classmethod
    def tables(cls, evaluated: Sequence[Evaluated]) -> Iterator[TaskTable]:
        """Yield a table for each length beyond the trained length.

        All tokens count, including those of the first copy. For a paired difference of two
        variants use `summaries.difference` with `column="first_token_correct"`.
        """
        rows: dict[tuple, dict] = {}  # by member and variant, then by lag and length
        for item in evaluated:
            if isinstance(task := evals.parse(item.task), repeated.Repeated):
                member = item.index, item.label, item.trained_length, item.variant
                rows.setdefault(member, {})[task.lag, item.length] = item.rows
        lines: dict[int, list] = {}
        for (index, label, trained, variant), by_key in rows.items():
            for length in sorted({length for _, length in by_key if length > trained}):
                cells = {"trained with": label, "evaluated with": variant}
                cells["trained length"] = format_share(by_key.get(("none", trained)))
                for lag, head in HEADS.items():
                    cells[head] = format_share(by_key.get((lag, length)))
                lines.setdefault(length, []).append((index, cells))
        for length in sorted(lines):
            yield SECTION, f"at {length:,}", CAPTION, lines[length]
