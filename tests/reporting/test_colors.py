"""A base has one color in all figures; nothing else chooses a color of a series."""

import itertools
import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from ropewalk.model.rotary import parse
from ropewalk.reporting import writing
from ropewalk.reporting.page import Drawing
from ropewalk.theory import show
from ropewalk.utils import figures
from ropewalk.utils.figures import stroke_of
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row
from tests.test_imports import ROOT, SOURCES

# A color or a color map by its value or name, instead of that of `utils.figures`.
_CHOSEN = re.compile(
    r"[\"']#[0-9a-fA-F]{3,8}[\"']|[\"'](C\d|tab:\w+|viridis|magma|plasma|cividis|RdBu\w*)[\"']"
    r"|\b(color|c|fc|ec|cmap|mfc|mec|facecolor|edgecolor)=[\"'](?!none)[\w.]+[\"']"
    r"|[\"'](color|fc|ec|mfc|mec)[\"']: [\"'](?!none)[\w.#]+[\"']"
)


def test_no_figure_code_chooses_colors():
    paths = [*SOURCES.values(), *(ROOT / "notebooks").glob("*.py")]
    drawing = [
        path for path in paths if "matplotlib" in (text := path.read_text()) or "figures" in text
    ]
    assert len(drawing) > 15
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in drawing
        if path != Path(figures.__file__)
        for match in _CHOSEN.finditer(path.read_text())
    }
    assert not found


def members_of(path, bases):
    """Return members with retrieval, text and losses, one of them with a window."""
    make_sweep(path, [*(f"base={base}" for base in bases), "window"])
    for base in bases:
        config = experiment(f"rope(base={base})")
        rows = answers(config, 20) + answers(config, 9, length=64)
        rows += [
            row(config, "perplexity", distance=d, document=k) for d in (2, 9) for k in range(9)
        ]
        rows += [row(config, "needle(depths=5)", document=k) for k in range(9)]
        make_run(path / f"base={base}", config, rows)
    window = experiment("rope(base=100)", window=8)
    make_run(path / "window", window, answers(window, 8))
    return read(path)


def colors(path, bases):
    """Return the colors of artists of base 100, by figure."""
    members = members_of(path, bases)
    index = next(m.index for m in members if m.label == "base=100")
    found = {}
    with matplotlib.rc_context(figures.STYLE):
        for section in writing._SECTIONS:
            for _, _, part in section(members):
                if isinstance(part, Drawing):
                    figure = part.draw()
                    drawn = figure.findobj(lambda a: hasattr(a, "get_color"))
                    drawn = [a for a in drawn if f"{a.get_gid()} ".startswith(f"member-{index} ")]
                    found[part.name] = {to_hex(a.get_color()) for a in drawn}
    return found


def test_a_base_has_one_color_in_every_figure_and_company(tmp_path):
    alone, among = colors(tmp_path / "a", (100,)), colors(tmp_path / "b", (10, 100, 300, 10000))
    color = stroke_of(100).color
    assert len(among) >= 6
    for name, found in [*alone.items(), *among.items()]:
        assert found <= {color, figures.INK}, name  # theory is black
    assert sum(color in found for found in among.values()) >= 5
    for others in ((), (10, 10000)):
        curves = {f"{base}": parse(f"rope(base={base})").inv_freq(64) for base in (100, *others)}
        line = show.draw_curves(curves, 128).axes[0].get_lines()[-1]
        assert to_hex(line.get_color()) == color


def test_colors_are_those_of_bases_and_lines_those_of_heads_or_windows():
    bases = 10, 30, 100, 300, 1e3, 1e4, 5e5, 1e8
    assert len({stroke_of(base).color for base in bases}) == len(bases)
    assert len({stroke_of(10, heads).linestyle for heads in (1, 2, 4, 8)}) == 4
    assert stroke_of(10, 1, 32) == stroke_of(10, 4, 32) != stroke_of(10, 1)
    assert stroke_of(None).color == figures.FAINT


@pytest.mark.parametrize("bases", [(10, 100, 10000)])
def test_panels_stand_one_below_the_other_on_a_phone(tmp_path, bases):
    members = members_of(tmp_path, bases)
    with matplotlib.rc_context(figures.STYLE), figures.phone_layout():
        drawings = [part for section in writing._SECTIONS for *_, part in section(members)
                    if isinstance(part, Drawing)]  # fmt: skip
        for drawing in drawings:
            figure = drawing.draw()
            assert figure.get_figwidth() <= figures.PHONE_WIDTH
            panels = [
                ax for ax in figure.axes if ax.get_subplotspec() and ax.get_label() != "<colorbar>"
            ]
            assert {ax.get_subplotspec().colspan.stop for ax in panels} == {1}, drawing.name


def test_names_at_the_ends_of_curves_are_apart_and_in_order():
    figure = figures.new_figure(6, 3)
    ax = figure.subplots()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    heights = [0.5, 0.51, 0.49, 1.0, 1.0, 0.0]
    ends = [figures.End(1, y, f"name {i}", "black") for i, y in enumerate(heights)]
    figures.label_ends(ax, ends)
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in ax.texts}  # no leaders
    order = sorted(ends, key=lambda end: boxes[end.name].y0)
    assert [end.y for end in order] == sorted(heights)
    pairs = itertools.pairwise(boxes[end.name] for end in order)
    assert all(lower.y1 <= upper.y0 + 0.5 for lower, upper in pairs)


def test_a_token_axis_of_less_than_two_octaves_has_several_ticks():
    ax = figures.new_figure(6, 3).subplots()
    figures.token_axis(ax.xaxis)
    ax.set_xlim(400, 600)
    ticks = [tick for tick in ax.get_xticks() if 400 <= tick <= 600]
    assert len(ticks) >= 3
