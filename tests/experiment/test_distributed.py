"""Processes of one run must have the same code."""

from ropewalk.experiment import distributed


def test_edits_that_are_not_committed_are_other_code(tmp_path):
    names = ("runs/mine.py", "model/rotary/yarn.py", "model/chips.toml")  # the first: no package
    for name in (*names, "model/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    digests = [distributed._digest_code(tmp_path)]
    for name in names:
        (tmp_path / name).write_text("2")
        digests.append(distributed._digest_code(tmp_path))
    assert digests[0] == digests[1] and len({*digests}) == 3
