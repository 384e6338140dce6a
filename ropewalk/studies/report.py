"""Write the report of a study: every claim with its number and mark, from the rows alone."""

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from ropewalk.reporting import page
from ropewalk.reporting.command import check_page
from ropewalk.reporting.page import NONE, Commands, Item, Table, format_caption
from ropewalk.studies import names, rows
from ropewalk.studies.card import NOT_MEASURED, Card, Claim
from ropewalk.studies.rows import Row
from ropewalk.utils.command_line import format_command
from ropewalk.utils.messages import counted


def write(
    package: ModuleType,
    cards: Mapping[str, Card],
    folder: Path,
    out: Path,
    seeds: Sequence[int] | None = None,
) -> list[str]:
    """Write the page `out` and its figures; return its tables as lines of text.

    Args:
      package: of the study. Its function `sections`, if there is one, takes the cards and all rows,
        and yields more items of the page.
      cards: by name.
      folder: of the rows.
      out: an HTML file.
      seeds: those whose rows count; None: all.

    Raises:
      ValueError: if a row is damaged.
    """
    check_page(out)
    all_rows = [row for row in rows.read_all(folder) if seeds is None or row.seed in seeds]
    table, counts = _claim_table(list(cards.values()), all_rows)
    items: list[Item] = [("Claims", "", table)]
    sections = getattr(package, "sections", lambda cards, rows: ())
    items += sections(list(cards.values()), all_rows)
    measured = {row.card for row in all_rows}
    missing = [name for name, card in cards.items() if card.members and name not in measured]
    study = package.__name__.rpartition(".")[2]
    # A study that is not of this repository is named by its path.
    where = study if study in names() else f"{Path(str(package.__file__)).parent}"
    command = format_command("studies", "run", where, "--only", ",".join(missing))
    page.write(
        out,
        items,
        names=[study],
        facts=_facts(cards, all_rows),
        questions=[(package.__doc__ or study).splitlines()[0]],
        summary=f"Claims: {counts}.",
        missing=Commands(lines=[("Cards without any rows:", command)] if missing else []),
        provenance=_provenance(all_rows),
    )
    return [f"Claims: {counts}", *_lines(items)]


def judge(claim: Claim, card: Card, all_rows: Sequence[Row]) -> tuple[str, dict[str, str]]:
    """Return the mark of a claim, and the cells of its table row."""
    value = claim.measure(card, all_rows)
    cells = {"claim": claim.text, "value [95% CI]": NONE, "claimed": claim.text_of_range, "n": NONE}
    if value is None:
        return NOT_MEASURED, cells | {"mark": NOT_MEASURED}
    mark = claim.mark(value)
    cells |= {"value [95% CI]": str(value), "n": counted(value.n, value.unit), "mark": mark}
    return mark, cells


def _claim_table(cards: Sequence[Card], all_rows: Sequence[Row]) -> tuple[Table, str]:
    lines, marks = [], collections.Counter()
    for card in cards:
        for claim in card.claims:
            mark, cells = judge(claim, card, all_rows)
            marks[mark] += 1
            lines.append((None, {"card": card.name} | cells))
    caption = format_caption("study_claims")
    counts = ", ".join(f"{number} {mark}" for mark, number in marks.most_common()) or NONE
    table = Table.from_cells(lines, caption=caption, wraps=True, has_all_columns=True)
    return table, counts


def _lines(items: Sequence[Item]) -> Iterator[str]:
    """Yield the tables of the page as text."""
    last = ""
    for title, _, item in items:
        if isinstance(item, Table):
            if title != last:
                yield f"\n{title}"
            last = title
            for _, cells in item.lines:
                pairs = itertools.zip_longest(item.heads, cells, fillvalue="")
                yield "  " + ", ".join(f"{head} {cell}".strip() for head, cell in pairs)


def _facts(cards: Mapping[str, Card], all_rows: Sequence[Row]) -> list[str]:
    runs = {(row.card, row.member, row.seed) for row in all_rows if row.card in cards}
    hours = sum(row.core_seconds for row in all_rows if row.card in cards) / 3600
    return [counted(len(cards), "cards"), counted(len(runs), "runs"), f"{hours:.1f} core-hours"]


def _provenance(all_rows: Sequence[Row]) -> list[str]:
    values = {
        name: sorted({str(row.made_by[name]) for row in all_rows if name in row.made_by})
        for name in ("commit", "jax", "device")
    }
    texts = [f"{name} {', '.join(items)}" for name, items in values.items() if items]
    return [f"Rows: {'; '.join(texts)}."] if texts else []
