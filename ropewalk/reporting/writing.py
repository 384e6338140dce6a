"""Write the page of run directories, with its figures and results.csv beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ropewalk.experiment.run import find_runs
from ropewalk.reporting import (
    commands,
    curves,
    effective_context,
    heat_maps,
    overview,
    page,
    results,
    superficial,
    tables,
)
from ropewalk.reporting import members as members_lib
from ropewalk.reporting.members import Member
from ropewalk.reporting.page import Commands, Item
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import printable
from ropewalk.utils.paths import as_path

# Each yields parts of the page, in this order, or nothing without results.
_SECTIONS = (
    effective_context.leading_figure,
    tables.numbers,
    tables.seeds,
    curves.trained_length,
    curves.by_distance,
    curves.by_length,
    heat_maps.by_depth,
    superficial.by_base,
    curves.task_figures,
    tables.variants,
    tables.others,
    tables.task_tables,
    curves.loss,
    tables.lengths_by_theory,
    overview.differences,
)


def write(dirs: Sequence[Path], out: Path, command: str) -> list[str]:
    """Write the page `out`, its figures and results.csv; the page shows `command`.

    Returns:
      Notices about runs (copies, lost rows), one line each, which the page shows too.

    Raises:
      ValueError: if a directory is neither a run nor a sweep, or its results are damaged.
    """
    dirs, out = [as_path(path) for path in dirs], as_path(out)
    notices: list[str] = []
    runs = {path: find_runs([path], notices.append) for path in dirs}
    members = members_lib.read([run for group in runs.values() for run in group], notices.append)
    repeat = commands.repeat(runs, command)
    page.write(out, _items(members, repeat), **overview.describe(members, notices))
    csv = results.to_csv(members)
    write_atomically(out.with_name("results.csv"), printable(csv))
    return notices


def _items(members: Sequence[Member], repeat: Sequence[str]) -> Iterator[Item]:
    for section in _SECTIONS:
        yield from section(members)
    yield "Commands to reproduce", "", Commands(lines=[("", "\n".join(repeat))])
