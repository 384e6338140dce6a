"""Su's table: shares of right tokens, at the trained length and beyond it."""

from collections.abc import Iterator, Sequence
from typing import Any

from ropewalk import evals
from ropewalk.evals.tasks import repeated
from ropewalk.reporting.results import format_share
from ropewalk.reporting.task_view import TaskTable, TaskView

SECTION = "Tokens guessed right"
HEADS = {"trained": "repeated, lag T", "half": "repeated, lag T/2", "none": "not repeated"}
CAPTION = (
    "Percentage of next tokens that are the most likely token, with 95% intervals "
    "over documents: at the trained length T; beyond it, in the first T (T/2) tokens repeated; "
    "and beyond it, in the text as it is (Su Jianlin, kexue.fm/archives/9706)."
)


class Repeated(TaskView):
    """View of `evals.tasks.repeated`."""

    @classmethod
    def tables(cls, members: Sequence[Any]) -> Iterator[TaskTable]:
        """Yield a table for each length beyond the trained length.

        All tokens count, including those of the first copy. For a paired difference of two
        variants use `summaries.difference` with `column="first_token_correct"`.
        """
        rows: dict[tuple, dict] = {}  # by member and variant, then by lag and length
        for member, measured in ((m, measured) for m in members for measured in m.measurements):
            if isinstance(task := evals.parse(measured.task), repeated.Repeated):
                key = member.index, member.label, member.trained_length, measured.variant
                rows.setdefault(key, {})[task.lag, measured.length] = measured.rows
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
