"""Processes of one run must have the same code."""

from ropewalk.experiment import distributed


def test_edits_that_are_not_committed_are_other_code(tmp_path):
    for folder in ("model/rotary", "runs"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("model/__init__.py", "model/rotary/yarn.py", "model/chips.toml", "runs/mine.py"):
        (tmp_path / name).write_text("1")
    digest = distributed._digest_code(tmp_path)
    (tmp_path / "runs/mine.py").write_text("2")  # no package
    assert distributed._digest_code(tmp_path) == digest
    for name in ("model/rotary/yarn.py", "model/chips.toml"):
        (tmp_path / name).write_text("2")
        digest, before = distributed._digest_code(tmp_path), digest
        assert digest != before
