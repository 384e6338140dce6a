"""Table of the zeros of each head's empirical B(m), written by `ropewalk probes`."""

import math
from collections.abc import Container, Iterator, Sequence

import numpy as np

from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting.members import Member, tasks
from ropewalk.reporting.page import Line, Table, format_caption
from ropewalk.reporting.tables import format_tokens
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.limits import read_arrays

_TASK = "kv"  # task of the probe


def read_zeros(member: Member) -> list[str]:
    """Return the zeros of the heads of each probed run, at checkpoints that the page shows.

    Tokens; 0: no advantage at distance 1.

    Raises:
      ValueError: if a probe's file is damaged.
    """
    evaluated = {int(step) for m in member.measurements for step in np.unique(m.rows["step"])}
    results = (_read(run, {*evaluated, *run.steps()[-1:]}) for run in member.runs)
    return [zeros for zeros in results if zeros]


def _read(run: RunDirectory, steps: Container[int]) -> str:
    """Return the zeros of a run; nothing without a file of one of these steps."""
    path = run.path / "probes" / "matching_keys.npz"
    if not path.exists():
        return ""
    try:
        step, zero_LN, distances_M = read_arrays(path, ("step", "zero_LN", "distances_M"))
        if int(step) not in steps:
            return ""
        longest = int(np.asarray(distances_M)[-1])
        zeros = np.asarray(zero_LN, float).ravel()
    except UnreachableError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OSError) as error:
        raise ValueError(
            f"{path} is damaged; write it again: ropewalk probes {run.path}"
        ) from error
    return ", ".join(f"> {longest}" if math.isinf(zero) else f"{zero:.3g}" for zero in zeros)


def zeros(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield the table of zeros beside L50 and periods, if a member has zeros and L50."""
    lines: list[Line] = []
    for member in members:
        task = next((name for name in tasks([member]) if name.partition("(")[0] == _TASK), None)
        seeds = read_zeros(member) if task else []
        if task and seeds:
            cells = {"member": member.label, "L50 [95% CI]": str(member.estimates[task])}
            cells["zero of B(m) of each head"] = " / ".join(seeds)
            cells["quarter period"] = format_tokens(member.theory.quarter_period)
            cells["full period"] = format_tokens(member.theory.full_period)
            lines.append((member.index, cells))
    if lines:
        table = Table.from_cells(lines, caption=format_caption("inside_table"))
        yield "Empirical B(m) of each head", "", table
