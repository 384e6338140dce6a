import pytest

from reporting import tables
from tests.reporting.helpers import answers, experiment, make_run, read, row


@pytest.fixture
def config():
    return experiment("rope(base=10)")


def measured(path, config, rows):
    make_run(path, config, rows)
    return read(path)


def test_other_definitions_of_effective_context(tmp_path, config):
    """Recall of 127 tokens: all of 128, half of 256, so 0.85 is not reached at 256."""
    rows = [r for n in (128, 256) for r in answers(config, 128, length=n, documents=40)]
    rows += [
        row(config, "vt", exact_match=False, first_token_correct=False),
        row(config, "fwe", length=512),
    ]
    by_task = tables.rules(measured(tmp_path, config, rows))
    assert list(by_task) == ["kv", "fwe"]  # no answer of vt is correct
    ((index, cells),) = by_task["kv"].lines
    cells_by_head = dict(zip(by_task["kv"].heads, cells, strict=True))
    assert index == 0 and cells_by_head["L50 [95% CI]"] == cells_by_head["L85 [95% CI]"] == "> 127"
    assert cells_by_head["visual edge"] == "127"
    for rule in ("0.85 of the shortest", "above 0.794", "above 0.856"):
        assert cells_by_head[rule] == "128"
    # A single length has no comparison with a shorter one.
    assert by_task["fwe"].lines[0][1][1:] == [">= 512", ">= 512"]
