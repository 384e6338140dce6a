"""The page: what stands on it, as data, and the templates beside this file that show it.

Every part names the template that draws it. Templates escape whatever they are given; the only
markup that enters as it is are the figures, which matplotlib wrote.
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
_WORDS = tomllib.loads((_FOLDER / "words.toml").read_text(encoding="utf-8"))
_TEMPLATES = load_templates(_FOLDER)

NONE = "–"  # in the cell of a number that does not exist


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure.

    Attributes:
      svg: an `<svg>` element, without XML prolog.
      width: as a share of the page's.
      alternative: what it shows, for who cannot see it.
      caption: under it.
    """

    template: ClassVar = "picture.html"
    svg: Markup
    width: float
    alternative: str
    caption: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers, or words.

    Attributes:
      heads: of the columns; the first one names the line.
      lines: their cells, with the index of the member each is about (None: of several).
      caption: under it.
      groups: of neighbouring columns, the first one left out: a heading and how many they are.
      wraps: whether cells are words, that may go over several rows of text.
    """

    template: ClassVar = "table.html"
    heads: Sequence[str]
    lines: Sequence[tuple[int | None, Sequence[str]]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    wraps: bool = False

    @classmethod
    def of(cls, lines: Sequence[tuple[int | None, Mapping[str, str]]], **options) -> "Table":
        """Of cells by head, with a column for every head of any line."""
        heads = list(dict.fromkeys(head for _, cells in lines for head in cells))
        filled = [(index, [cells.get(head, NONE) for head in heads]) for index, cells in lines]
        return cls(heads=heads, lines=filled, **options)

    @property
    def edges(self) -> set[int]:
        """Columns that begin a group."""
        return {1 + sum(span for _, span in self.groups[:n]) for n in range(len(self.groups))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commands:
    """Shell lines, each with a sentence before it where there is something to say."""

    template: ClassVar = "commands.html"
    lines: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folded:
    """A part that is shown when it is asked for."""

    template: ClassVar = "folded.html"
    summary: str
    part: "Part"


Part: TypeAlias = Picture | Table | Commands | Folded


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, and parts of which those with a name are shown one at a time."""

    title: str
    parts: list[Part]
    choices: dict[str, Part] = dataclasses.field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """What links to it."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What one member shows: "LABEL is VALUE" or "LABEL finds answers VALUE tokens back"."""

    label: str
    before: str
    value: str
    after: str


def words(name: str, /, **given: object) -> dict[str, str]:
    """What templates/words.toml has under a name, with `given` filled in."""
    return {key: " ".join(text.format(**given).split()) for key, text in _WORDS[name].items()}


def render(**page: Any) -> str:
    """The page as one HTML file with everything inside; templates/page.html says of what."""
    return _TEMPLATES.get_template("page.html").render(page)
