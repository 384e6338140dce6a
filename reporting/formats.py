"""Formats of printed results: tables, CSV, JSON, Markdown."""

import json
import math
import sys
from typing import Any

from reporting.labels import name_runs
from reporting.members import make_members
from reporting.results import make_lines, write_csv
from reporting.tables import Results, tables
from utils.messages import printable
from utils.text_table import print_tables


def print_results(results: Results, form: str) -> None:
    """Print results on standard output, in one of `evals.options.FORMATS`."""
    if form == "table":
        print_tables(tables(results))
    elif form == "markdown":
        print(printable("\n\n".join(table.markdown() for table in tables(results))))
    elif form == "csv":
        sys.stdout.write(printable(write_csv(_lines(results))))
    else:
        lines = [
            {name: _json_value(value) for name, value in line.items()} for line in _lines(results)
        ]
        print(json.dumps(lines, indent=1))


def _lines(results: Results) -> list[dict[str, Any]]:
    """Return a dict of the columns of results.csv for each run, task, length and variant."""
    names = name_runs([run for run, *_ in results])
    return [
        line | {"member": name}
        for name, (run, _, rows) in zip(names, results, strict=True)
        for member in make_members({run: rows})
        for line in make_lines(member)
    ]


def _json_value(value: Any) -> Any:
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else None if math.isnan(value) else str(value)
