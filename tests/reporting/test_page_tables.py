import pytest

from experiment.run import find_runs
from reporting import members as members_lib
from reporting import page_tables
from tests.reporting.helpers import answers, experiment, make_run, row


@pytest.fixture
def config():
    return experiment("rope(base=10)")


def read(path, config, rows):
    make_run(path, config, rows)
    return members_lib.read(find_runs([path]))


def test_other_definitions_of_effective_context(tmp_path, config):
    """Recall of 127 tokens: all of 128, half of 256, so 0.85 is not reached at 256."""
    rows = [r for n in (128, 256) for r in answers(config, 128, length=n, documents=2)]
    rows += [row(config, "vt", exact_match=False), row(config, "fwe", length=512)]
    tables = page_tables.rules(read(tmp_path, config, rows))
    assert list(tables) == ["kv", "fwe"]  # no answer of vt is correct
    ((index, cells),) = tables["kv"].lines
    cells_by_head = dict(zip(tables["kv"].heads, cells, strict=True))
    assert index == 0 and cells_by_head["L50 [95% CI]"] == cells_by_head["L85"] == "> 127"
    assert cells_by_head["visual edge"] == "127"
    for rule in ("0.85 of the shortest", "above 0.794", "above 0.856"):
        assert cells_by_head[rule] == "128"
    # A single length has no comparison with a shorter one.
    assert tables["fwe"].lines[0][1][1:] == ["–", ">= 512", ">= 512"]


def test_scores_of_whole_context_tasks(tmp_path, config):
    """Three documents of four: a standard error of sqrt(4/3 * 12/16) / 4 = 1/4."""
    rows = [row(config, "vt", document=n, exact_match=n > 0) for n in range(4)]
    rows += [row(config, "fwe", length=512, exact_match=False, document=n) for n in (0, 1)]
    table = page_tables.scores(read(tmp_path, config, rows))
    assert table is not None
    assert table.heads == ["member", "fwe at 512", "vt at 128"]
    assert table.lines[0][1][1:] == ["0.0 ± 0.0", "75.0 ± 49.0"]


def test_all_measures_of_the_likelihood_of_text(tmp_path, config):
    """60 nats over 40 tokens, 50 bytes and 12 words; windows of 1 and 3 nats per token."""
    sizes = {"num_bytes": 25, "num_words": 6}
    rows = [
        row(config, "sliding_window", nll=1.0, num_tokens=30, **sizes),
        row(config, "sliding_window", nll=3.0, num_tokens=10, document=1, **sizes),
    ]
    tables = page_tables.texts(read(tmp_path, config, [*rows, row(config, "step1")]))
    assert list(tables) == ["sliding_window"]
    cells = tables["sliding_window"].lines[0][1][1:]
    assert cells == ["128", "2", "1.5000", "4.48", "1.7312", "148.4", "2"]
    assert tables["sliding_window"].heads[-1] == "window mean nll"
