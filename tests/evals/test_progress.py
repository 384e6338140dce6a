"""An evaluation without a terminal still says how far it is."""

import io

import pytest
from rich.console import Console

from evals import progress
from evals.progress import Progress


@pytest.mark.parametrize("every, lines", [(0.0, 2), (1e9, 0)])
def test_lines_where_there_is_no_terminal(monkeypatch, every, lines):
    monkeypatch.setattr(progress, "LINE_EVERY", every)
    written = io.StringIO()
    with Progress(Console(file=written, width=200)) as shown:
        bar = shown.add_task("step1 at 1024", total=4096)
        shown.advance(bar, 1000)
        shown.advance(bar, 24)
    expected = [
        "step1 at 1024: 1,000 of 4,096 documents",
        "step1 at 1024: 1,024 of 4,096 documents",
    ]
    assert written.getvalue().splitlines() == expected[:lines]
