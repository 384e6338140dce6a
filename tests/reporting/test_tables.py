import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from ropewalk.evals import rows as rows_lib
from ropewalk.reporting import tables
from ropewalk.reporting.labels import name_runs
from ropewalk.reporting.measurements import measurements
from ropewalk.reporting.page import Table
from ropewalk.reporting.task_view import view_of
from ropewalk.utils.text_table import TextTable
from tests.reporting.helpers import answers, experiment, make_run, read, row

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

    return [
        result("a", experiment("rope(base=10)"), 20, 40, 60),
        result("b", experiment("rope(base=10000)", train=dict(num_steps=1000)), 200),
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


def test_machine_readable_formats_have_every_column(results, capsys):
    tables.print_results(results, "csv")
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    kv = [line for line in lines if (line["task"], line["schedule"]) == ("kv", "trained")]
    assert [line["member"] for line in kv] == name_runs(*list(zip(*results, strict=True))[:2])
    assert float(kv[2]["l50"]) == pytest.approx(31.5, abs=1)
    tables.print_results(results, "json")
    assert len(json.loads(capsys.readouterr().out)) == len(lines)
    tables.print_results(results[:1], "markdown")
    head = next(s for s in capsys.readouterr().out.split("\n") if s.startswith("| run"))
    assert head.count("|") == len(tables.tables(results[:1])[0].heads) + 1


def test_runs_are_named_by_the_stage_that_was_evaluated(tmp_path):
    stage = "model.rotary.base=500", "data.context_length=256"
    configs = experiment("rope(base=10)", stages=(stage,)), experiment("rope(base=30)")
    results = []
    for name, config, step in zip("ab", configs, (20, 10), strict=True):
        rows = answers(config, 20, step=step, documents=16)
        run = make_run(tmp_path / name, config, rows)
        results.append((run, run.config_at(step), rows_lib.read_run(run)))
    (table,) = tables.tables(results)
    assert [line["run"] for line in table.lines] == ["base=500@20", "base=30"]


def test_one_document_has_no_interval(tmp_path):
    results = []
    for name, base, nll in (("a", 10, 2.5), ("b", 30, 2.0)):
        config = experiment(f"rope(base={base})")
        rows = [row(config, "perplexity", document=0, nll=nll, num_bytes=4)]
        run = make_run(tmp_path / name, config, rows)
        results.append((run, config, rows_lib.read_run(run)))
    text = " ".join(table.markdown() for table in tables.tables(results))
    assert "nan" not in text and text.count("best |") == 1
    assert "+0.5000 [too few documents]" in text


def test_a_column_of_dashes_is_left_out():
    lines = [{"run": "a", "dip": "–", "L50": "5"}, {"run": "b", "dip": "–", "L50": "-"}]
    assert TextTable(title="", lines=lines).heads == ["run", "L50"]
    table = Table.from_cells([(None, line) for line in lines])
    assert table.heads == ["run", "L50"] and table.lines[0][1] == ["a", "5"]


def test_theory_is_that_of_the_evaluated_variant(tmp_path):
    """B_m < 0 from 5 tokens on for base 10, from 725 for base 10,000."""
    config = experiment("rope(base=10000)")
    run = make_run(tmp_path / "run", config, answers(config, 20, variant="rope(base=10)"))
    (measured,) = measurements(rows_lib.read_run(run), config)
    assert measured.theory.first_violation == 5


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_what_has_no_number_is_not_measured(form, tmp_path, capsys):
    """No table has a NaN: a model whose losses are not finite, under another variant too."""
    config, nan = experiment("rope(base=10)"), float("nan")
    tasks = "perplexity", "fixed_target(target=8)", "sliding_window", "pg19", "step1", "shifted"
    rows = [
        row(config, task, document=n // 3, query=n % 3, distance=32 << n % 3, nll=nan) | other
        for task in (*tasks, "lagcopy(text=natural)", "lagcopy(text=control)")
        for other in ({}, {"rotary": "nope", "base": nan})
        for n in range(6)
    ]
    run = make_run(tmp_path / "run", config, rows)
    tables.print_results([(run, config, rows_lib.columns(rows))], form)
    assert "nan" not in capsys.readouterr().out.lower()
    assert "nan" not in str(list(tables.others(read(run.path)))).lower()
    for task in tasks:
        part = rows_lib.select(rows_lib.read_run(run), rotary="rope(base=10)", task=task)
        assert not any(np.isfinite(curve.y).any() for curve in view_of(task).curves(part, part))
