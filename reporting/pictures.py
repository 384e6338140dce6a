"""Figures as PNG and SVG files beside the page, and as inline SVG."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from reporting.members import Member
from reporting.page import Picture
from reporting.style import use_page_colors

_PAGE_WIDTH = 10  # inches


class Drawing(NamedTuple):
    """A figure to be saved.

    Attributes:
      name: the file's name is made of its words.
      captions: `alternative` and `caption` of `Picture`.
    """

    name: str
    figure: Figure
    captions: Mapping[str, str]


def save(drawing: Drawing, page: Path, members: Sequence[Member]) -> Picture:
    """Save a figure as PNG and SVG beside `page`, and return it as inline SVG."""
    name, figure = "_".join(re.findall(r"\w+", drawing.name)), drawing.figure
    png = io.BytesIO()
    figure.savefig(png, format="png")
    page.with_name(f"{name}.png").write_bytes(png.getvalue())
    figure.set_layout_engine("none")  # saving the PNG fixed the layout
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # `reporting.style.tag` put tooltips into ids: move them into title elements.
    hidden, shown = r'<g id="([\w-]+) title:([^"]*)">', r'<g class="\1"><title>\2</title>'
    svg = re.sub(hidden, shown, buffer.getvalue())
    page.with_name(f"{name}.svg").write_text(svg, encoding="utf-8", errors="replace")
    svg = Markup(use_page_colors(inline(svg, name), members))
    return Picture(svg=svg, width=figure.get_figwidth() / _PAGE_WIDTH, **drawing.captions)


def inline(svg: str, name: str) -> str:
    """Return an SVG file as a page element: scalable, no prolog or metadata, ids prefixed."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]+"', "", svg)
    svg = re.sub(r'\bid="(member-\d+)( [\w-]+)?"', r'class="\1\2"', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
