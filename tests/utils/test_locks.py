"""Locks of dead processes, and file systems without locks."""

import subprocess
import sys

import pytest

from utils.locks import try_lock

HOLDER = """
import sys, time
from pathlib import Path
from utils.locks import try_lock
with try_lock(Path(sys.argv[1])) as file:
    print("held" if file else "not held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "lock"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_one_process_has_the_lock_until_it_is_killed(holder, tmp_path):
    with try_lock(tmp_path / "lock") as file:
        assert file is None
    holder.kill()
    holder.wait()
    with try_lock(tmp_path / "lock") as file:
        assert file is not None
