"""Small files are read as what they have to be."""

import json

import pytest

from ropewalk.experiment.records import METRICS, MetricsDigest, read_json_lines


@pytest.mark.parametrize("half", ['{"step": 2, "tok', '{"step": 2, "name": "\\u00', b'{"a": "\xc3'])
def test_half_a_line_at_the_end_is_left_out(tmp_path, half):
    row = {"step": 1, "tokens": 64, "loss": None, "extra": "ü"}
    path = tmp_path / "metrics.jsonl"
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(line + (half.encode() if isinstance(half, str) else half))
    assert read_json_lines(path, METRICS) == [row]
    path.write_bytes(line + line.strip())
    assert read_json_lines(path, METRICS) == [row, row]


def test_a_digest_of_metrics_is_of_every_field_but_those_of_the_clock():
    row = dict.fromkeys(("step", "tokens", "loss", "grad_norm", "skipped", "val_loss"), 1)
    row |= dict.fromkeys(("seconds", "tokens_per_second", "mfu"), 2.0)
    record = MetricsDigest([row]).record()
    changes = {name: MetricsDigest([row | {name: 3}]).difference(record) for name in row}
    assert {name for name, difference in changes.items() if not difference} == {
        *("seconds", "tokens_per_second", "mfu")
    }
