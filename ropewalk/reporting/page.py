"""The parts of an HTML page, and their rendering with Jinja templates and matplotlib.

Each part names its template. Templates escape all text; only figures, which matplotlib wrote, are
inserted as markup. A page is one self-contained file; its figures are also PNG and SVG files.
"""

import dataclasses
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jinja2
import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from ropewalk.utils.figures import NAMED, PAGE_WIDTH, STYLE, Stroke, phone_layout
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import printable

_FOLDER = Path(__file__).with_name("templates")


def load_templates(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder and the shared ones; they escape variables."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_CAPTIONS = tomllib.loads((_FOLDER / "captions.toml").read_text(encoding="utf-8"))
_TEMPLATES = load_templates(_FOLDER)

NONE = "–"  # cell of a number that does not exist
Line: TypeAlias = tuple[int | None, Mapping[str, str]]  # member's index, cells by column head


class Drawing(NamedTuple):
    """A figure to be saved beside a page and shown on it.

    Attributes:
      name: the names of its files are made of its words.
      draw: draws it.
      captions: `alternative`, text for screen readers, and `caption`, text under the figure.
    """

    name: str
    draw: Callable[[], Figure]
    captions: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """A saved figure: its `<svg>` elements for pages and phones, its width there, and its texts.

    `width` is a share of the page's.
    """

    template: ClassVar = "picture.html"
    svg: Markup
    phone_svg: Markup
    width: float
    alternative: str
    caption: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of numbers or text.

    Attributes:
      heads: column heads; the first column names the row.
      lines: the index of the row's member (None: no single member) and the row's cells.
      caption: text under the table.
      wraps: whether cells are text, which may be broken into several lines.
    """

    template: ClassVar = "table.html"
    heads: Sequence[str]
    lines: Sequence[tuple[int | None, Sequence[str]]]
    caption: str = ""
    wraps: bool = False

    @classmethod
    def from_cells(cls, lines: Sequence[Line], *, has_all_columns: bool = False, **options):
        """Return the table of lines, with the column heads in order of appearance.

        Columns without any number are left out, unless the table `has_all_columns`.
        """
        heads = [
            head
            for head in dict.fromkeys(head for _, cells in lines for head in cells)
            if has_all_columns or any(cells.get(head, NONE) != NONE for _, cells in lines)
        ]
        filled = [(index, [cells.get(head, NONE) for head in heads]) for index, cells in lines]
        return cls(heads=heads, lines=filled, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commands:
    """Shell command lines, each after an explanation, which may be empty."""

    template: ClassVar = "commands.html"
    lines: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folded:
    """A part that is collapsed until the reader opens it."""

    template: ClassVar = "folded.html"
    summary: str
    part: "Part"


Part: TypeAlias = Picture | Table | Commands | Folded
# Title of a section; name of the part among the section's choices, or empty; the part.
Item: TypeAlias = tuple[str, str, Part | Drawing]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, named parts shown one at a time (`choices`), and parts that are always shown."""

    title: str
    parts: list[Part] = dataclasses.field(default_factory=list)
    choices: dict[str, Part] = dataclasses.field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """Target of links to this section."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


def format_captions(name: str, /, **values: object) -> dict[str, str]:
    """Return the texts of a table in templates/captions.toml, rendered with `values`."""
    options: Any = {"undefined": jinja2.StrictUndefined}
    return {
        key: " ".join(jinja2.Template(text, **options).render(values).split())
        for key, text in _CAPTIONS[name].items()
    }


def format_caption(name: str, /, **values: object) -> str:
    """Return the caption of a table."""
    return format_captions(name, **values)["caption"]


def make_figure(
    title: str,
    captions: str,
    draw: Callable[..., Figure],
    *arguments: Any,
    name: str = "",
    **values,
) -> Item:
    """Return a figure of the section `title`, with its captions in captions.toml.

    `draw` takes the arguments; figures of one section that are choices have a `name`.
    """
    texts = format_captions(captions, name=name, **values)
    return title, name, Drawing(f"{captions} {name}", partial(draw, *arguments), texts)


def format_list(texts: Iterable[str]) -> Markup:
    """Return texts as a list of a page's findings."""
    return Markup('<ul class="findings">{}</ul>').format(
        Markup("").join(Markup("<li>{}</li>").format(text) for text in texts)
    )


def write(out: Path, items: Iterable[Item], *, strokes: Sequence[Stroke] = (), **page: Any) -> None:
    """Write the page `out`, and its figures beside it as PNG and SVG.

    Args:
      out: an HTML file; its folder is made.
      items: parts of the page in order; the first leads the page, without its title, if it is alone
        in its section. Figures may be drawn when they are requested: then the style is set.
      strokes: by member index.
      **page: other variables of templates/page.html.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    sections: dict[str, Section] = {}
    glyphs: dict[str, str] = {}
    with matplotlib.rc_context(STYLE):
        for title, name, part in items:
            part = _save(part, out, glyphs) if isinstance(part, Drawing) else part
            section = sections.setdefault(title, Section(title=title))
            if name:
                section.choices[name] = part
            else:
                section.parts.append(part)
    first, *rest = sections.values()
    is_lead = len(first.parts) == 1 and not first.choices
    lead, shown = (first, rest) if is_lead else (None, [first, *rest])
    variables = {"missing": Commands(lines=[])} | page
    variables |= {
        "lead": lead,
        "sections": shown,
        "strokes": strokes,
        "glyphs": Markup("".join(glyphs.values())),
    }
    text = _TEMPLATES.get_template("page.html").render(variables)
    write_atomically(out, printable(text))


def _save(drawing: Drawing, page: Path, glyphs: dict[str, str]) -> Picture:
    """Save a figure as PNG and SVG beside `page`, and return it as inline SVG.

    On a page, a phone has a drawing of its own. Letters are added to `glyphs`, which all share.
    """
    name, figure = "_".join(re.findall(r"\w+", drawing.name)), drawing.draw()
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(page.with_name(f"{name}.png"), png.getvalue())
    figure.set_layout_engine("none")  # saving the PNG fixed the layout
    svg = _as_svg(figure)
    write_atomically(page.with_name(f"{name}.svg"), printable(svg))
    width = figure.get_figwidth() / PAGE_WIDTH
    with phone_layout():
        phone_svg = _inline(_as_svg(drawing.draw()), f"{name}-phone", glyphs)
    svgs = {"svg": _inline(svg, name, glyphs), "phone_svg": phone_svg}
    return Picture(width=width, **svgs, **drawing.captions)


def _as_svg(figure: Figure) -> str:
    """Return a figure as an SVG file."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # `utils.figures.tag` put tooltips into ids: move them into title elements.
    hidden, shown = r'<g id="([\w-]+) title:([^"]*)">', r'<g class="\1"><title>\2</title>'
    return re.sub(hidden, shown, buffer.getvalue())


_GLYPH = re.compile(r'<path id="(Glyph[^"]*)"[^>]*/>\s*')


def _inline(svg: str, name: str, glyphs: dict[str, str]) -> Markup:
    """Return an SVG file as a page element: scalable, with the page's colors and unique ids.

    The shapes of its letters are moved to `glyphs`, by id.
    """
    svg = svg.replace("xlink:href", "href").replace("DejaVuSans-", "Glyph")
    glyphs |= {match[1]: match[0] for match in _GLYPH.finditer(svg)}
    svg = _GLYPH.sub("", svg)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]+"', "", svg)
    svg = re.sub(r'\bid="(member-\d+)( [\w-]+)?"', r'class="\1\2"', svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#(?!Glyph)', rf"\1#{name}-", svg)
    svg = re.sub(r"(<use [^>]*translate\(\d+)\.\d+", r"\1", svg)  # tenths of a point
    # Tenths of a point are enough for paths; glyphs are defined in smaller units.
    svg = re.sub(
        r'(?<= d=")[^"]*(?=" (?:clip-path|style))',
        lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]),
        svg,
    )
    # Each of these colors has a value for light and one for dark pages.
    return Markup(re.sub("|".join(NAMED), lambda match: f"var(--{NAMED[match[0]]})", svg))
