import concurrent.futures
import json

import numpy as np
import pytest

from evals import rows

ROW = {
    "task": "kv", "split": "validation", "run": "base=10", "run_id": "0123456789ab-ba9876543210",
    "step": 400, "seed": 0, "rotary": "rope(base=10)", "base": 10.0, "trained_length": 256,
    "length": 256, "distance": 17, "document": 3, "query": 5, "num_tokens": 1, "exact_match": True,
    "first_token_correct": True, "nll": 0.1234567890123456, "rank": 0, "chance": 0.015625,
    "num_bytes": 9, "num_words": 2,
}  # fmt: skip


def test_rows_survive_the_file_exactly(tmp_path):
    path = tmp_path / "results.jsonl"
    nope = ROW | {"rotary": "nope", "base": None, "nll": 7.0, "exact_match": False}
    rows.write(path, rows.columns([ROW, nope]))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [ROW, nope]
    back = rows.read(path)
    assert back["nll"].tolist() == [0.1234567890123456, 7.0]
    assert np.isnan(back["base"][1])
    assert {name: column.dtype.kind for name, column in back.items()} == {
        name: {str: "U", int: "i", float: "f", bool: "b"}[kind]
        for name, kind in rows.SCHEMA.items()
    }
    assert [p.name for p in tmp_path.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "results.jsonl:2: not JSON"),
        ("[1]", "results.jsonl:2: a row is a JSON object"),
        (json.dumps({k: v for k, v in ROW.items() if k != "rank"}), ":2: lacks 'rank'"),
        (json.dumps(ROW | {"depth": 0.5}), ":2: a row of another schema"),
        (json.dumps(ROW | {"distance": "17"}), ":2: distance must be a whole number, got '17'"),
        (json.dumps(ROW | {"distance": 17.5}), ":2: distance must be a whole number, got 17.5"),
        (json.dumps(ROW | {"exact_match": 1}), ":2: exact_match must be True or False, got 1"),
        (json.dumps(ROW | {"step": True}), ":2: step must be a whole number, got True"),
        (json.dumps(ROW | {"run": None}), ":2: run must be a string, got None"),
    ],
)
def test_a_row_of_another_schema_is_refused_by_file_and_line(tmp_path, line, message):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=message):
        rows.read(path)


def test_a_new_evaluation_replaces_its_own_rows_only():
    unrelated = [
        ROW | {"task": "lines"},
        ROW | {"length": 128},
        ROW | {"step": 200},
        ROW | {"rotary": "nope"},
    ]
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
    assert {*zip(result["task"].tolist(), result["step"].tolist(), strict=True)} == {
        (task, step) for task in ("kv", "lines") for step in range(15)
    }
