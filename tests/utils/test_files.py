"""Atomic writes by concurrent and killed processes."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ropewalk.utils.files import check_writable, write_atomically
from ropewalk.utils.locks import lock

# Ends or waits after it has created its unfinished file.
WRITER = """
import os, signal, sys, time
from pathlib import Path
from ropewalk.utils import files
def stop(*_):
    print(flush=True)
    time.sleep(600)
files.os.fsync = stop
files.write_atomically(Path(sys.argv[1]), "half")
"""


def start_writer(path) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    return process


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


def test_unfinished_files_of_dead_writers_are_removed_and_no_others(tmp_path):
    path = tmp_path / "rows"
    other = [tmp_path / name for name in ("rows.part", "rows.mine.part", "more.01234567.part")]
    for file in other:
        file.touch()
    dead = start_writer(path)
    dead.kill()
    dead.communicate()
    assert len({*tmp_path.iterdir()}) == 4
    living = start_writer(path)
    (unfinished,) = {*tmp_path.iterdir()} - {*other}  # the first one was removed
    write_atomically(path, "all")
    assert {*tmp_path.iterdir()} == {*other, unfinished, path} and path.read_text() == "all"
    living.kill()
    living.communicate()
