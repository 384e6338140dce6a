"""Figures as files beside the page, and as elements inside it."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from reporting.members import Member
from reporting.page import Picture
from reporting.style import for_page

_PAGE_WIDTH = 10  # inches


class Drawing(NamedTuple):
    """A figure, to be saved under its name.

    Attributes:
      name: of the file, made of the words in it.
      words: its `alternative` and `caption`, as `Picture` has them.
    """

    name: str
    figure: Figure
    words: Mapping[str, str]


def save(drawing: Drawing, page: Path, members: Sequence[Member]) -> Picture:
    """Saves a figure as PNG and SVG beside `page`, and returns it for that, as inline SVG."""
    name, figure = "_".join(re.findall(r"\w+", drawing.name)), drawing.figure
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    page.with_name(f"{name}.png").write_bytes(drawn.getvalue())
    figure.set_layout_engine("none")  # it is laid out by now
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # What `reporting.style.tag` hid: a title inside its element, which browsers show.
    hidden, shown = r'<g id="([\w-]+) title:([^"]*)">', r'<g class="\1"><title>\2</title>'
    svg = re.sub(hidden, shown, buffer.getvalue())
    page.with_name(f"{name}.svg").write_text(svg, encoding="utf-8", errors="replace")
    svg = Markup(for_page(inline(svg, name), members))
    return Picture(svg=svg, width=figure.get_figwidth() / _PAGE_WIDTH, **drawing.words)


def inline(svg: str, name: str) -> str:
    """An SVG file as an element of a page: no prolog or metadata, ids of its own, scalable."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]+"', "", svg)
    svg = re.sub(r'\bid="(member-\d+)( [\w-]+)?"', r'class="\1\2"', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
