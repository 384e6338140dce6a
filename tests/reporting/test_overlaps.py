"""No text of a figure overlaps other text."""

import dataclasses

import matplotlib
import pytest
from matplotlib.figure import Figure

from reporting.page import Drawing
from reporting.style import STYLE
from reporting.writing import write
from tests.reporting.helpers import answers, experiment, make_run, row
from tests.reporting.overlaps import overlaps


def test_overlaps_are_measured_on_the_drawn_figure():
    figure = Figure()
    ax = figure.subplots()
    ax.text(0.5, 0.5, "one label")
    ax.text(0.52, 0.5, "another")
    ax.text(0.5, 0.9, "apart")
    assert overlaps(figure) == [("one label", "another")]


@pytest.mark.slow
def test_figures_of_a_page_have_no_overlapping_text(tmp_path, monkeypatch):
    """Side by side: equal bases with several heads, controls with long names, a distant base."""
    for base in ("rope(base=10)", "rope(base=30)", "rope(base=10000)", "nope"):
        for heads in (1, 4):
            config = experiment(
                base, window=32 if (base, heads) == ("rope(base=10000)", 4) else None
            )
            model = dataclasses.replace(config.model, num_heads=heads, num_kv_heads=heads)
            config = dataclasses.replace(config, model=model)
            rows = [row(config, "perplexity"), *answers(config, 20 * heads, documents=2)]
            rows += answers(config, 20 * heads, length=256, documents=2)
            make_run(tmp_path / f"{base}{heads}", config, rows)
    figures = {}
    create = Drawing.__new__

    def record(cls, name, figure, captions):
        figures[name] = figure
        return create(cls, name, figure, captions)

    monkeypatch.setattr(Drawing, "__new__", record)
    with matplotlib.rc_context(STYLE):
        write(sorted(tmp_path.iterdir()), tmp_path / "page" / "report.html", "python report.py")
        assert len(figures) > 3
        assert {
            name: pairs for name, figure in figures.items() if (pairs := overlaps(figure))
        } == {}
