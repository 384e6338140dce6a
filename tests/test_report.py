import collections
import html
import re

import matplotlib
import pytest

from ropewalk.utils import figures as style
from tests.in_process import call
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read


@pytest.fixture(autouse=True, scope="module")
def coarse_pictures():
    patch = pytest.MonkeyPatch()
    patch.setitem(style.STYLE, "savefig.dpi", 40)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Bases that recall 20, 60 and all tokens, one that learned nothing, and two controls."""
    folder = make_sweep(
        tmp_path_factory.mktemp("sweep"),
        ["rotary=nope", "base=10000", "base=10", "base=30", "base=100", "window=32"],
    )
    reaches = {"base=10": 20, "base=30": 60, "base=100": 0, "base=10000": 1000}
    for name, reach in reaches.items():
        config = experiment(f"rope({name})")
        rows = answers(config, reach) + answers(config, 1000, task="lines")
        make_run(folder / name, config, rows + answers(config, 1000, task="perplexity"))
    nope = experiment("nope")
    make_run(folder / "rotary=nope", nope, answers(nope, 1000))
    window = experiment("rope(base=10000)", window=32)
    make_run(folder / "window=32", window, answers(window, 32))
    call("report.py", folder)
    return folder


@pytest.fixture(scope="module")
def members(sweep):
    return read(sweep)


@pytest.fixture(scope="module")
def page(sweep):
    return (sweep / "report.html").read_text(encoding="utf-8")


def numbers(text) -> dict[str, dict[str, str]]:
    """Return the cells of all tables by member and column head, the first table's first."""
    table = collections.defaultdict(dict)
    for row in text.split("<tr")[1:]:
        cells = {
            html.unescape(head): html.unescape(re.sub("<.*?>", "", cell)).strip()
            for head, cell in re.findall(r'<td[^>]*data-head="([^"]*)"[^>]*>(.*?)</td>', row, re.S)
        }
        member = cells.get("member", "")
        table[member] = cells | table[member]
    return table


def test_the_table_shows_theory_in_plain_numbers(page):
    """First m with B_m < 0, (pi/2) b^(1-2/d) and 2 pi b^(1-2/d) at d = 64."""
    table, names = numbers(page), ("theory length", "quarter period", "full period")
    theory = {member: [cells.get(name) for name in names] for member, cells in table.items()}
    assert theory["base=10"] == ["5", "15", "58"]
    assert theory["base=30"] == ["17", "42", "169"]
    assert theory["base=100"] == ["46", "136", "544"]
    assert theory["base=10000"] == ["725", "11,779", "47,117"]
    assert theory["rotary=nope"] == ["none", "∞", "∞"]


def test_the_table_shows_measurements(page):
    table, effective = numbers(page), "effective context [95% CI]"
    for member, last_right in (("base=10", 19), ("base=30", 59), ("base=10000,window=32", 31)):
        cells = table[member]
        first = {name: re.findall(r"[\d.]+", cell) for name, cell in cells.items()}
        l50, low, high = map(float, first[effective])
        assert low <= l50 <= high and l50 == pytest.approx(last_right + 0.5, abs=1)
        assert float(first["mean accuracy"][0]) == pytest.approx(last_right / 127, abs=0.01)
        assert float(first["worst bin"][0]) == 0 and 0.97 < float(cells["ceiling"]) <= 1
        assert 0.8 * last_right < float(first["L85"][0]) < l50
    assert table["base=10000"][effective] == "> 127"
    assert table["base=100"][effective] == "NOT_LEARNED" and table["base=100"]["ceiling"] == "0.00"
    assert not any("dip" in cells for cells in table.values())  # no member dips


def test_the_page_has_no_external_references_and_its_own_have_targets(page):
    assert not re.search(r"https?:|//www|\bsrc=|<link|@import", page)
    assert len(page) < 700_000
    targets = re.findall(r'(?:url\(|href=")(.)([^")]+)', page)
    ids = re.findall(r'<[^>]*\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert {first for first, _ in targets} == {"#"} and {name for _, name in targets} <= set(ids)


def test_equal_and_different_training_rows_are_reported(page, tmp_path):
    assert "Data fingerprint f00d. All runs consumed the same 80 rows (digest 0000000" in page
    make_run(tmp_path / "a", experiment("rope(base=10)"), digest=1)
    make_run(tmp_path / "b", experiment("rope(base=30)"), digest=2)
    call("report.py", tmp_path / "a", tmp_path / "b")
    text = (tmp_path / "report-a+b" / "report.html").read_text()
    assert "Runs consumed different rows" in text


def test_only_the_last_checkpoint_under_the_trained_variant_counts(tmp_path):
    """`evaluate.py --rotary` and earlier steps leave rows in the same file."""
    config = experiment("rope(base=10)")
    rows = answers(config, 1000, variant="nope") + answers(config, 1000, step=5)
    make_run(tmp_path, config, rows + answers(config, 20))
    (member,) = read(tmp_path)
    assert 19 <= member.estimates["kv"].l50 <= 20


def test_a_page_of_several_directories_replaces_none_of_theirs(tmp_path, monkeypatch):
    """Neither the pages, nor the figures and numbers beside them."""
    runs = [make_run(tmp_path / n, experiment(f"rope(base={n})")).path for n in ("10", "30")]
    for run in runs:
        call("report.py", run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    call("report.py", "10", "30")
    assert matplotlib.get_backend() == "svg"  # a notebook's, which shows its later figures
    assert all(path.read_bytes() == content for path, content in before.items())
    both = tmp_path / "report-10+30"
    assert (both / "results.csv").exists() and (both / "loss.png").exists()
    page = (both / "report.html").read_text()
    assert not (both / "effective_context.png").exists()  # nothing was evaluated
    assert {"base=10", "base=30"} <= numbers(page).keys()
    # A directory given twice is one, and a pattern like * names this page's too.
    call("report.py", "10", "30", "10")
    call("report.py", "10", runs[0])
    call("report.py", "10", "30", "report-10+30")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("report")] == [
        "report-10+30"
    ]
