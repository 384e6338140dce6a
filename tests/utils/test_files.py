"""Atomic writes by concurrent and killed processes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from ropewalk.utils.files import write_atomically

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
