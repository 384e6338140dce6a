"""docs/rotary.md has a row for every schedule, and its lines can be copied."""

import re
from pathlib import Path

import pytest

from model.rotary import parse, variants

TABLE = (Path(__file__).parents[3] / "docs" / "rotary.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in TABLE.splitlines() if line.startswith("| ")][1:]
LINES = [text for row in ROWS for text in re.findall("`(.*?)`", row[-1])]


def test_every_schedule_has_a_row():
    assert {row[0].partition(",")[0].strip() for row in ROWS} == set(variants())


@pytest.mark.parametrize(
    "line", [line for line in LINES if "..." not in line and "file=" not in line]
)
def test_a_config_line_is_an_expression(line):
    parse(line)
