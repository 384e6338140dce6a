"""Data classes for the parts of an HTML page, and their rendering with Jinja templates.

Each part names its template. Templates escape all text; only figures, which matplotlib wrote, are
inserted as markup.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jinja2
from markupsafe import Markup


def load_templates(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder. They escape variables; undefined variables raise."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_FOLDER = Path(__file__).with_name("templates")
_CAPTIONS = tomllib.loads((_FOLDER / "captions.toml").read_text(encoding="utf-8"))
_TEMPLATES = load_templates(_FOLDER)

NONE = "–"  # cell of a number that does not exist


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure.

    Attributes:
      svg: an `<svg>` element, without XML prolog.
      width: share of the page's width.
      alternative: text for screen readers.
      caption: text under the figure.
    """

    template: ClassVar = "picture.html"
    svg: Markup
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
      groups: heading and number of columns of each column group, from the second column on.
      wraps: whether cells are text, which may be broken into several lines.
    """

    template: ClassVar = "table.html"
    heads: Sequence[str]
    lines: Sequence[tuple[int | None, Sequence[str]]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    wraps: bool = False

    @classmethod
    def from_cells(cls, lines: Sequence[tuple[int | None, Mapping[str, str]]], **options):
        """Return the table of rows whose cells are keyed by column head, in order of appearance."""
        heads = list(dict.fromkeys(head for _, cells in lines for head in cells))
        filled = [(index, [cells.get(head, NONE) for head in heads]) for index, cells in lines]
        return cls(heads=heads, lines=filled, **options)

    @property
    def edges(self) -> set[int]:
        """Index of the first column of each group."""
        return {1 + sum(span for _, span in self.groups[:n]) for n in range(len(self.groups))}


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, named parts shown one at a time (`choices`), and parts that are always shown."""

    title: str
    parts: list[Part]
    choices: dict[str, Part] = dataclasses.field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """Target of links to this section."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one member: "LABEL BEFORE VALUE AFTER"."""

    label: str
    before: str
    value: str
    after: str


def format_captions(name: str, /, **values: object) -> dict[str, str]:
    """Return the texts of a table in templates/captions.toml, with `values` filled in."""
    return {key: " ".join(text.format(**values).split()) for key, text in _CAPTIONS[name].items()}


def render(**page: Any) -> str:
    """Return the page as one self-contained HTML file; templates/page.html lists its variables."""
    return _TEMPLATES.get_template("page.html").render(page)
