import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from evals import rows as rows_lib
from probes.page import format_findings, list_findings
from probes.probe import Number
from reporting import tables
from reporting.labels import name_runs
from reporting.page import Table
from tests.in_process import call
from tests.reporting.helpers import answers, experiment, make_run, row
from theory.published import OPEN_MODELS
from utils.text_table import TextTable, terminal_width

GOLDEN = Path(__file__).with_name("golden")
WIDTHS = 80, 120


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A window, a run without rotation, an unfinished run, several variants, and text."""
    folder = tmp_path_factory.mktemp("runs")

    def result(name, config, *reaches):
        rows = [row(config, "perplexity", document=d, nll=1 + d, num_bytes=4) for d in range(3)]
        for reach, variant in zip(
            reaches, (None, "rope(base=500)", "ntk_aware(base=10,factor=4)"), strict=False
        ):
            rows += answers(config, reach, variant=variant, documents=40)
            rows += answers(config, reach, variant=variant, documents=40, task="lines")
        run = make_run(folder / name, config, rows)
        return run, config, rows_lib.read_run(run)

    longer = dataclasses.replace(experiment("rope(base=10)").train, num_steps=1000)
    return [
        result("a", experiment("rope(base=10)"), 20, 40, 60),
        result("b", dataclasses.replace(experiment("rope(base=10000)"), train=longer), 200),
        result("c", experiment("rope(base=10000)", window=32), 32),
        result("d", experiment("rope(base=10000)", window=32, seed=1), 30),
        result("e", experiment("nope"), 200),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit_the_terminal(results, width):
    several = tables.tables(results)
    plain = [(run, config, rows_lib.select(rows, task="kv")) for run, config, rows in results[1:]]
    several += tables.tables(plain)
    text = "\n\n".join(table.text(width) for table in several) + "\n"
    assert max(map(len, text.split("\n"))) <= width
    assert width != 120 or text == (GOLDEN / "tables.txt").read_text()


def _findings(folder):
    """A range over members, one of which has two seeds; a number that all share."""
    numbers = {"zero of the empirical B(m), largest over heads (tokens)": "1.0", "correct": ""}

    def measure(value):
        values = Number(value, value / 2, math.inf), Number(0.5)
        named = dict(zip(numbers, values, strict=True))
        return SimpleNamespace(numbers=lambda: named, heads_of=lambda: numbers)

    label = "model.rotary.base={},model.num_heads=4,model.window=32"
    by_label = {label.format(base): [measure(base)] * (base // 10) for base in (10, 20)}
    return format_findings(list_findings({"probe": by_label}), terminal_width())  # pyright: ignore


def _step1(folder):
    """Two runs under bases and under a variant with a long name."""
    results = []
    for base in (10, 10000):
        config, rows = experiment(f"rope(base={base})"), []
        variants = f"rope(base={base})", "ntk_aware(base=10,factor=4)"
        for nll, variant in enumerate((*variants, *(f"rope(base=1e{n})" for n in range(1, 7)))):
            rows += [row(config, "step1", query=q, rotary=variant, nll=nll + q) for q in (0, 1)]
        run = make_run(folder / f"base={base}", config, rows)
        results.append((run, config, rows_lib.read_run(run)))
    return "\n\n".join(table.text(terminal_width()) for table in tables.tables(results))


def _audit(folder):
    (config,) = (model.config for model in OPEN_MODELS if model.name == "gpt-oss-20b")
    (folder / "config.json").write_text(json.dumps(config))
    return call("-m", "theory", "audit", folder / "config.json")


TABLES = {
    "findings": _findings,
    "step1": _step1,
    "lengths": lambda _: call("-m", "theory", "table", "--lengths", "1k", "4k"),
}


MEASURED_TABLES = {
    "models": lambda _: call("-m", "theory", "models", "llama-4-scout", "gpt-oss-20b"),
    "audit": _audit,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "name", [*TABLES, *(pytest.param(name, marks=pytest.mark.hf) for name in MEASURED_TABLES)]
)
def test_other_tables_fit_the_terminal(name, width, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    if name in MEASURED_TABLES:
        pytest.importorskip("transformers")
    text = (TABLES | MEASURED_TABLES)[name](tmp_path).rstrip() + "\n"
    assert max(map(len, text.split("\n"))) <= width
    assert width != 120 or text == (GOLDEN / f"{name}.txt").read_text()


def test_names_have_the_fields_that_differ_and_the_seed(results):
    runs = [run for run, *_ in results]
    assert name_runs(runs)[2:4] == [
        "base=10000,window=32,seed=0",
        "base=10000,window=32,seed=1",
    ]
    assert name_runs(runs[:1]) == ["a"]


def test_a_table_without_room_never_exceeds_the_width():
    line = {"run": "base=10,num_heads=4"} | {f"column {n}": "1.23 [0.99, 2.11]" for n in range(9)}
    text = TextTable(title="A title of several words", lines=[line]).text(40)
    assert max(map(len, text.split("\n"))) <= 40


def test_machine_readable_formats_have_every_column(results, capsys):
    tables.print_results(results, "csv")
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    kv = [line for line in lines if (line["task"], line["schedule"]) == ("kv", "trained")]
    assert [line["member"] for line in kv] == name_runs([run for run, *_ in results])
    assert float(kv[2]["l50"]) == pytest.approx(31.5, abs=1)
    tables.print_results(results, "json")
    assert len(json.loads(capsys.readouterr().out)) == len(lines)
    tables.print_results(results[:1], "markdown")
    head = next(s for s in capsys.readouterr().out.split("\n") if s.startswith("| run"))
    assert head.count("|") == len(tables.tables(results[:1])[0].heads) + 1


def test_members_are_compared_with_the_best_on_the_same_text(tmp_path):
    """Nats of 1 and 3, and .1 and .2 more: .15 ± 1.96 x .05; other text is not compared."""
    results = []
    for base, more, size in ((10, (0.1, 0.2), 7), (30, (0, 0), 7), (100, (0.3, 0.3), 9)):
        config = experiment(f"rope(base={base})")
        rows = [
            row(config, "perplexity", document=n, nll=nll + more[n], num_tokens=5, num_bytes=size)
            for n, nll in enumerate((1.0, 3.0))
        ]
        run = make_run(tmp_path / str(base), config)
        results.append((run, config, rows_lib.columns(rows)))
    (table,) = tables.tables(results)
    head = "above the best [95% CI]"
    assert table.heads[-1] == head
    assert [line[head] for line in table.lines] == ["+0.1500 ± 0.0980", "best", "other text"]
    (alone,) = tables.tables(results[:1])
    assert head not in alone.heads


def test_a_table_without_rows_says_none():
    """`theory audit` of a model that no known code misreads."""
    text = TextTable(title="Misreadings", lines=[]).text(80)
    assert text.split() == ["Misreadings", "none"]


def test_a_column_of_dashes_is_left_out():
    lines = [{"run": "a", "dip": "–", "L50": "5"}, {"run": "b", "dip": "–", "L50": "-"}]
    assert TextTable(title="", lines=lines).heads == ["run", "L50"]
    table = Table.from_cells([(None, line) for line in lines])
    assert table.heads == ["run", "L50"] and table.lines[0][1] == ["a", "5"]
