import concurrent.futures
import json

import numpy as np
import pytest

from ropewalk.evals import rows

ROW = {
    "task": "kv", "split": "validation", "run": "base=10", "run_id": "0123456789ab-ba9876543210",
    "step": 400, "seed": 0, "rotary": "rope(base=10)", "base": 10.0, "trained_length": 256,
    "length": 256, "distance": 17, "document": 3, "query": 5, "num_tokens": 1, "exact_match": True,
    "first_token_correct": True, "nll": 0.1234567890123456, "rank": 0, "chance": 0.015625,
    "num_bytes": 9, "num_words": 2,
}  # fmt: skip


def test_rows_survive_the_file_exactly(tmp_path):
    path = tmp_path / "results.jsonl"
    nope = ROW | {"rotary": "nope", "base": None, "nll": 7.0}
    rows.write(path, rows.columns([ROW, nope]))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("file")[:2] for line in lines] == ["2-", "2-"]
    assert lines == [ROW, nope]
    back = rows.read(path)
    assert back["nll"].tolist() == [0.1234567890123456, 7.0]
    assert np.isnan(back["base"][1])
    kinds = {str: "U", int: "i", float: "f", bool: "b"}
    for name, kind in rows.SCHEMA.items():
        assert back[name].dtype.kind == kinds[kind], name
    assert [p.name for p in tmp_path.iterdir()] == ["results.jsonl"]


# A row may not contradict itself.
CONTRADICTIONS = (
    *({"rank": 144}, {"exact_match": False}, {"num_tokens": 3, "first_token_correct": False}),
    *({"nll": -2.5}, {"chance": 1.5}, {"num_tokens": 0}, {"distance": 257}),
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((json.dumps(ROW | change), "results.jsonl:2: ") for change in CONTRADICTIONS),
        ("{", "results.jsonl:2: not JSON"),
        ("[1]", "results.jsonl:2: a row is a JSON object"),
        (json.dumps({k: v for k, v in ROW.items() if k != "rank"}), ":2: lacks 'rank'"),
        (json.dumps(ROW | {"depth": 0.5}), ":2: a row of another schema \\(differs in: depth\\)"),
        (json.dumps(ROW | {"distance": 17.5}), ":2: distance must be a whole number, got 17.5"),
    ],
)
def test_a_row_of_another_schema_is_refused_by_file_and_line(tmp_path, line, message):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=message):
        rows.read(path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda lines: lines[:3] + lines[4:], id="a deleted line"),
        pytest.param(lambda lines: lines[:-2], id="cut at a line end"),
        pytest.param(lambda lines: lines + lines, id="appended to itself"),
        pytest.param(lambda lines: lines[::-1], id="another order"),
        pytest.param(lambda lines: [*lines, json.dumps(ROW)], id="a line without the digest"),
        pytest.param(lambda lines: [*lines[1:], lines[0].replace("17", "18")], id="a number"),
        pytest.param(lambda lines: [], id="nothing left"),
    ],
)
def test_rows_that_are_not_those_that_were_written_are_noticed(tmp_path, damage):
    path = tmp_path / "results.jsonl"
    rows.write(path, rows.columns([ROW | {"query": query} for query in range(6)]))
    path.write_text("".join(line + "\n" for line in damage(path.read_text().splitlines())))
    with pytest.raises(ValueError, match=r"results\.jsonl .*; restore a copy"):
        rows.read(path)


def test_rows_without_any_digest_are_read_with_a_note(tmp_path, capsys):
    """Files of older versions have none, and neither has a file from which all were stripped."""
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"query": 6}) + "\n")
    assert rows.read(path)["query"].tolist() == [5, 6]
    assert f"note: {path}: no digest" in capsys.readouterr().err
    rows.write(path, rows.read(path))
    capsys.readouterr()
    rows.read(path)
    assert not capsys.readouterr().err


def test_answers_that_a_file_without_digest_has_twice_are_refused(tmp_path):
    """Appended to itself, it would have twice the answers and an interval 1.4 times too narrow."""
    path = tmp_path / "results.jsonl"
    lines = [json.dumps(ROW | {"query": query}) + "\n" for query in range(3)]
    path.write_text("".join(lines + lines))
    with pytest.raises(ValueError, match=r"results\.jsonl has some answers twice; restore a copy"):
        rows.read(path)


def test_a_new_evaluation_replaces_its_own_rows_only():
    changes = ({"task": "lines"}, {"length": 128}, {"step": 200}, {"rotary": "nope"})
    unrelated = [ROW | change for change in changes]
    old = rows.columns([ROW, *unrelated, ROW | {"document": 9}])
    new = rows.columns([ROW | {"distance": 99}])
    merged = rows.replace(old, new)
    expected = rows.columns([*unrelated, ROW | {"distance": 99}])
    for name in rows.SCHEMA:
        assert merged[name].tolist() == expected[name].tolist(), name


def test_of_two_that_add_at_once_neither_loses_a_row(tmp_path):
    path = tmp_path / "results.jsonl"

    def add(task):
        for step in range(15):
            rows.add(path, rows.columns([ROW | {"task": task, "step": step}]))

    with concurrent.futures.ThreadPoolExecutor() as threads:
        list(threads.map(add, ("kv", "lines")))
    result = rows.read(path)
    pairs = {*zip(result["task"].tolist(), result["step"].tolist(), strict=True)}
    assert pairs == {(task, step) for task in ("kv", "lines") for step in range(15)}
