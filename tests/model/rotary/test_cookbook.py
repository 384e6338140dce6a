"""The table of docs/rotary.md is that of the docstrings, and its lines can be copied."""

import re
from pathlib import Path

import pytest

from ropewalk.model.rotary import parse
from ropewalk.theory.show import cookbook

TABLE = (Path(__file__).parents[3] / "docs" / "rotary.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in TABLE.splitlines() if line.startswith("| ")][2:]
LINES = [text for row in ROWS for text in re.findall("`(.*?)`", row[-1])]


def test_the_table_is_that_of_the_docstrings():
    """If it fails, replace the table by what `ropewalk theory cookbook` prints.

    A variant of somebody's own may be without a row.
    """
    rows = [line for line in TABLE.splitlines() if line.startswith("| ")]
    assert {*rows} <= {*cookbook().splitlines()}
    assert len(ROWS) >= 19 and {len(row) for row in ROWS} == {6}


@pytest.mark.parametrize(
    "line", [line for line in LINES if "..." not in line and "file=" not in line]
)
def test_a_config_line_is_an_expression(line):
    parse(line)
