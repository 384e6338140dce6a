"""A folder that is being written belongs to one process; other folders are left alone."""

import pytest

from ropewalk.interop.folders import new_folder


def test_what_a_killed_process_left_is_replaced(tmp_path):
    with new_folder(tmp_path / "a") as part:
        (part / "x").write_text("new")
        left = [path.name for path in part.iterdir()]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]
    (tmp_path / "b.part" / "old").mkdir(parents=True)
    for name in set(left) - {"x"}:
        (tmp_path / "b.part" / name).touch()
    with new_folder(tmp_path / "b") as part:
        (part / "x").write_text("new")
        with pytest.raises(ValueError, match="another process"), new_folder(tmp_path / "b"):
            pass
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["x"]


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), new_folder(tmp_path / "c" / "d") as part:
        (part / "x").touch()
        raise KeyError
    assert not list(tmp_path.iterdir())
