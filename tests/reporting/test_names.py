"""Names of runs with formulas and markup are shown literally."""

import html
import re

from ropewalk.evals.generation import command
from ropewalk.reporting.writing import write
from ropewalk.utils.figures import STYLE
from ropewalk.utils.messages import printable
from ropewalk.utils.text_table import TextTable, print_tables
from tests.reporting.helpers import answers, experiment, make_run, make_sweep

NAMES = [r"$\foo{$", "$x_1$<script>alert(1)</script>", "plain"]


def test_names_with_formulas_or_markup_are_shown_literally(tmp_path, monkeypatch):
    monkeypatch.setitem(STYLE, "savefig.dpi", 40)
    for number, path in enumerate(NAMES):
        question, data = "$\\foo{$ <b>? \udcff\x1b[2J", dict(source="jsonl", path=path)
        config = experiment("rope(base=10)", question=question, data=data)
        make_run(tmp_path / f"{number}", config, answers(config, 40 + number, documents=16))
    make_sweep(tmp_path, [str(number) for number in range(len(NAMES))])
    write([tmp_path], tmp_path / "report.html", "python report.py")
    drawn = [html.unescape(path.read_text()) for path in tmp_path.glob("*.svg")]
    texts = [re.findall(r"<!-- (.*?) -->", svg) for svg in drawn]
    for name in NAMES:
        assert all(any(name in text for text in figure_texts) for figure_texts in texts)
    # Tick labels are not formulas either.
    assert not any("mathdefault" in svg or "10^" in svg for svg in drawn)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page and r"$\foo{$ &lt;b&gt;? \udcff\x1b[2J" in page
    assert all(printable(text) == text for text in [page, *drawn])


def test_tables_print_no_control_characters(capsys):
    print_tables([TextTable(title="\x1b[2J", lines=[{"run": "a\x07b", "task": "<b>\x9b2J"}])])
    for piece in ("b\x1b[H", "a\rA", ""):
        command._print(0, piece)
    text = capsys.readouterr().out
    assert printable(text) == text and r"\x1b[2J" in text and r"b\x1b[H" in text
