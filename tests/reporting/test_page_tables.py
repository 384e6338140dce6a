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


def test_other_rules_stand_beside_l50(tmp_path, config):
    """Sees 127 tokens: all of 128 and half of 256, where 0.85 of all is not reached."""
    rows = [r for n in (128, 256) for r in answers(config, 128, length=n, documents=2)]
    rows += [row(config, "vt", exact_match=False), row(config, "fwe", length=512)]
    found = page_tables.rules(read(tmp_path, config, rows))
    assert list(found) == ["kv", "fwe"]  # nobody got any of vt right
    ((index, cells),) = found["kv"].lines
    named = dict(zip(found["kv"].heads, cells, strict=True))
    assert index == 0 and named["L50 [95% CI]"] == named["L85"] == "> 127"
    assert named["visual edge"] == "127"
    for rule in ("0.85 of the shortest", "above 0.794", "above 0.856"):
        assert named[rule] == "128"
    # At a single length there is no shorter one to compare with.
    assert found["fwe"].lines[0][1][1:] == ["–", ">= 512", ">= 512"]


def test_answers_from_a_whole_context(tmp_path, config):
    """Three documents of four: a standard error of sqrt(4/3 * 12/16) / 4 = 1/4."""
    rows = [row(config, "vt", document=n, exact_match=n > 0) for n in range(4)]
    rows += [row(config, "fwe", length=512, exact_match=False, document=n) for n in (0, 1)]
    table = page_tables.scores(read(tmp_path, config, rows))
    assert table is not None
    assert table.heads == ["member", "fwe at 512", "vt at 128"]
    assert table.lines[0][1][1:] == ["0.0 ± 0.0", "75.0 ± 49.0"]


def test_text_by_every_measure(tmp_path, config):
    """60 nats over 40 tokens, 50 bytes and 12 words; windows of 1 and 3 nats per token."""
    sizes = {"num_bytes": 25, "num_words": 6}
    rows = [
        row(config, "sliding_window", nll=1.0, num_tokens=30, **sizes),
        row(config, "sliding_window", nll=3.0, num_tokens=10, document=1, **sizes),
    ]
    found = page_tables.texts(read(tmp_path, config, [*rows, row(config, "step1")]))
    assert list(found) == ["sliding_window"]
    cells = found["sliding_window"].lines[0][1][1:]
    assert cells == ["128", "2", "1.5000", "4.48", "1.7312", "148.4", "2"]
    assert found["sliding_window"].heads[-1] == "window mean nll"
