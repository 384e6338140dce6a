"""Atomic writes by concurrent processes, and disks that cannot be written or locked."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from ropewalk.utils.files import check_writable, write_atomically
from ropewalk.utils.locks import lock


def test_a_link_to_a_disk_that_is_not_mounted_is_refused(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    with pytest.raises(
        ValueError, match=r"runs is a link to .*scratch, which does not exist; mount"
    ):
        check_writable(tmp_path / "runs" / "a", "use another --workdir")


def test_a_read_only_disk_is_the_reason_that_nothing_is_locked(tmp_path, monkeypatch):
    """Not `delete the lock`, which helps against links and pipes."""

    def refuse(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=r"Read-only file system: .*lock"), lock(tmp_path / ".lock"):
        pass


def test_many_may_write_one_file_at_once(tmp_path):
    """The jobs of an array start one sweep in the same second."""
    path = tmp_path / "sweep.json"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: write_atomically(path, str(number) * 1000), range(200)))
    (file,) = tmp_path.iterdir()
    assert file == path and len({*path.read_text()}) <= 3


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "rows").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"No space left on device: .*rows'"):
        write_atomically(tmp_path / "rows", "new")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]
