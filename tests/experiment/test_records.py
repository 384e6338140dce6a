"""Small files are read as what they have to be; what sets two sweeps apart is said."""

import json

import pytest

from configs import find_config
from experiment.records import METRICS, SweepRecord, read_json_lines
from experiment.run import RunDirectory, find_runs, find_trained

SWEEP = SweepRecord(
    config="demo", overrides=("a=1,2", "train.keep=2", "c=3"), members=("a=1", "a=2")
)


@pytest.mark.parametrize(
    "other, expected",
    [
        ({}, ""),
        ({"overrides": ("a=1,2", "train.keep=9", "c=3")}, ""),
        ({"config": "small"}, "of demo, and this one is of small"),
        ({"overrides": ("a=1,2", "c=4")}, "with c=3, and this one has c=4 in its place"),
        ({"overrides": ("a=1,2",)}, "with c=3, which this one lacks"),
        ({"overrides": ("a=1,2", "c=3", "d=4")}, "without d=4"),
        ({"overrides": ("c=3", "a=1,2")}, "with the same overrides in another order"),
        ({"members": ("a=1", "a=3")}, "of a=1 a=2, and this one is of a=1 a=3"),
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


def test_a_sweep_without_a_member_has_the_others(tmp_path):
    (tmp_path / "sweep.json").write_text(SWEEP.to_json())
    with pytest.raises(ValueError, match="names the member a=1, which is not there"):
        find_runs([tmp_path])
    for name in SWEEP.members:
        RunDirectory(tmp_path / name).write_config(find_config("tiny"), ())
    with pytest.raises(ValueError, match="a=1 has no checkpoint"):
        find_trained([tmp_path])
    (tmp_path / "a=2" / "checkpoints" / "7").mkdir(parents=True)
    notices = []
    assert [run.name for run in find_trained([tmp_path], notices.append)] == ["a=2"]
    (tmp_path / "a=1" / "config.json").unlink()
    assert [run.name for run in find_runs([tmp_path], notices.append)] == ["a=2"]
    assert ["a=1" in notice for notice in notices] == [True, True]
