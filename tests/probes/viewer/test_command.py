"""The command on trained runs."""

import json
import shutil

import pytest

from ropewalk.probes.viewer.__main__ import main
from tests.probes.viewer.test_page import script_text

# Slow, because runs are trained first.
pytestmark = pytest.mark.slow


@pytest.mark.long
def test_two_equal_runs_are_shown_by_path(trained_run, tmp_path, capsys):
    out, other = tmp_path / "new" / "view.html", str(tmp_path / "other")
    shutil.copytree(trained_run, other)
    assert main([str(trained_run), other, "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    page = json.loads(script_text(out.read_text(encoding="utf-8"), "page"))
    assert [member["name"] for member in page["members"]] == [str(trained_run), other]
    assert [len(row["tokens"]) for row in page["rows"]] == [64, 64]
