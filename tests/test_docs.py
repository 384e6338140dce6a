"""Pages are short, and what they link to and show exists; `make docs` builds them as a site."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")


def read(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", read(page), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_hold(page):
    for file, anchor in LINK.findall(read(page)):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


def test_every_figure_is_shown():
    shown = {name for page in PAGES for name, _ in LINK.findall(read(page))}
    pictures = {path.name for path in ROOT.glob("docs/*.png")}
    assert pictures and pictures <= {Path(name).name for name in shown}


def test_pages_are_short():
    """README fits two screens; a page is read at once, and no table is wider than a screen."""
    lines = {page.name: page.read_text(encoding="utf-8").splitlines() for page in PAGES}
    assert len(lines["README.md"]) <= 110 and max(map(len, lines["README.md"])) <= 100
    assert sum(map(len, lines.values())) - len(lines["CHANGELOG.md"]) <= 2_200
    longer = {"interop.md", "language_model.md", "CHANGELOG.md"}  # to be shortened
    assert {name for name, text in lines.items() if len(text) > 150} <= longer
    columns = {name: max(_columns(line) for line in text) for name, text in lines.items()}
    assert {name: number for name, number in columns.items() if number > 7} == {"gpu.md": 8}


def _columns(line: str) -> int:
    return line.count("|") - 1 if line.startswith("|") else 0
