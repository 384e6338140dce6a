"""Small files are read as what they have to be; what sets two sweeps apart is said."""

import json

import pytest

from experiment.records import METRICS, SweepRecord, read_json_lines

SWEEP = SweepRecord(
    config="demo", overrides=("a=1,2", "train.keep=2", "c=3"), members=("a=1", "a=2")
)


@pytest.mark.parametrize(
    "other, expected",
    [
        ({}, ""),
        ({"overrides": ("a=1,2", "train.keep=9", "c=3")}, ""),
        ({"overrides": ("a=1,2", "c=4")}, "with c=3, and this one has c=4"),
        ({"members": ("a=1", "a=3")}, "with a=1 a=2, and this one has a=1 a=3"),
    ],
)
def test_what_sets_sweeps_apart(other, expected):
    record = SweepRecord(**{**vars(SWEEP), **other})
    assert SWEEP.difference(record, lambda name: name.startswith("train.")) == expected


@pytest.mark.parametrize("half", ['{"step": 2, "tok', '{"step": 2, "name": "\\u00', b'{"a": "\xc3'])
def test_half_a_line_at_the_end_is_left_out(tmp_path, half):
    row = {"step": 1, "tokens": 64, "loss": None, "extra": "ü"}
    path = tmp_path / "metrics.jsonl"
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(line + (half.encode() if isinstance(half, str) else half))
    assert read_json_lines(path, METRICS) == [row]
    path.write_bytes(line + line.strip())
    assert read_json_lines(path, METRICS) == [row, row]
