"""A new user's first hour: text of one's own to a report, an own config, more steps, a comparison.

Notebooks and dashboards are tested in tests/notebooks and by `make test-tracking`.
"""

import re

import pytest

import ropewalk
from ropewalk.utils.plugins import allow
from tests.data.helpers import plain_text
from tests.in_process import call
from tests.models import SMALL


@pytest.mark.slow
def test_the_first_hour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "books"
    text.mkdir()
    for name in ("one.txt", "two.txt"):
        (text / name).write_text("\n\n".join(map(plain_text, range(len(name), 100))))
    own = f"data.path={text}", f"data.prepared_root={tmp_path / 'data'}", *SMALL
    own += "train.eval_every=0", "evals.tasks=[perplexity]"
    checked = call("train.py", "own_text", "--workdir", "runs/mine", *own, "--check")
    assert "rows: 100% text (data.retrieval_fraction=0)" in checked
    assert "the last 1/10 of each text file is held out" in checked
    assert re.search(r"passes over the text.*\ntime: .*\ndisk: ", checked)
    assert not (tmp_path / "runs").exists()
    call("train.py", "own_text", "--workdir", "runs/mine", *own)
    assert "perplexity" in call("evaluate.py", "runs/mine", "--documents", 8)
    assert {row["task"] for row in ropewalk.rows("runs/mine")} == {"perplexity"}

    call("train.py", "own_text", "--write", "mine.py", *own)
    allow("mine.py")
    bases = "model.rotary.base=10,1e4"
    call("sweep.py", "mine.py", "--workdir", "runs/bases", bases)
    call("sweep.py", "mine.py", "--workdir", "runs/longer", bases, "start_from=runs/bases")
    call("evaluate.py", "runs/bases", "runs/longer", "--documents", 8)
    call("report.py", "runs/bases", "runs/longer", "--out", "both.html")
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert all(f"base={base}" in page for base in ("10", "1e4"))
    listed = call("-m", "experiment", "list", "runs")
    assert all(name in listed for name in ("mine", "bases", "longer"))
    assert ropewalk.load("runs/longer/base=10").config.start_from == "runs/bases/base=10@3"
