"""Su's table: shares of right tokens, at the trained length and beyond it."""

from collections.abc import Iterator, Sequence

import evals
from evals.tasks import repeated
from reporting.members import Member
from reporting.page import Table
from reporting.tables import format_share
from reporting.task_view import TaskView

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
    def tables(cls, members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
        """Yield a table for each length beyond the trained length.

        All tokens count, including those of the first copy. For a paired difference of two
        variants use `summaries.difference` with `column="first_token_correct"`.
        """
        lines: dict[int, list] = {}
        for member in members:
            rows: dict[str, dict] = {}  # by variant, then by lag and length
            for m in member.measurements:
                if isinstance(task := evals.parse(m.task), repeated.Repeated):
                    rows.setdefault(m.variant, {})[task.lag, m.length] = m.rows
            for length in sorted({length for keys in rows.values() for _, length in keys}):
                keys = {"trained length": ("none", member.trained_length)}
                keys |= {head: (lag, length) for lag, head in HEADS.items()}
                for variant, by_key in rows.items():
                    cells = {"trained with": member.label, "evaluated with": variant}
                    for head, key in keys.items():
                        cells[head] = format_share(by_key.get(key))
                    if length > member.trained_length and by_key.keys() & {*keys.values()}:
                        lines.setdefault(length, []).append((member.index, cells))
        for length in sorted(lines):
            yield SECTION, f"at {length:,}", Table.from_cells(lines[length], caption=CAPTION)
