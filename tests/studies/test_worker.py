"""A worker stays out of the way of whatever else the machine does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="Linux without autogroups")
def test_its_session_has_the_lowest_priority_too():
    """sched(7): where autogrouping is on, niceness within a session says nothing of others."""
    code = (
        "from studies.worker import yield_to_others; yield_to_others(); import os; "
        "print(os.nice(0), open('/proc/self/autogroup').read().split()[-1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.stdout.split() == ["19", "19"], done.stderr
