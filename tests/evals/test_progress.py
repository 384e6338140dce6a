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


def test_on_a_terminal_there_is_a_bar_alone():
    written = io.StringIO()
    with Progress(Console(file=written, width=200, force_terminal=True)) as shown:
        shown.advance(shown.add_task("step1 at 1024", total=4096), 1000)
    assert "of 4,096 documents" not in written.getvalue() and "step1" in written.getvalue()


def test_the_time_left_is_that_of_the_flops_left(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    clock = iter([0.0, *[60.0] * 9])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    written = io.StringIO()
    shown = Progress(Console(file=written, width=200))
    shown.flops_left = 4e12
    shown.advance(shown.add_task("kv at 64", total=100), 90, flops=1e12)
    assert written.getvalue() == "kv at 64: 90 of 100 documents, about 3 min left\n"
