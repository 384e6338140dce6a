"""A few injected faults, losses of power and kills; `python -m tests.faults` runs many."""

import subprocess
import sys

import pytest

from tests.faults import power
from tests.faults.commands import ROOT


@pytest.mark.parametrize("mode", [(), ("--power",), ("--kills",)])
def test_a_preparation_survives_faults(mode, environment):
    command = [sys.executable, "-m", "tests.faults", "--commands", "prepare", "--faults", "5"]
    result = subprocess.run(
        [*command, *mode], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("| prepare")]
    counts = [int(row.split("|")[-2]) for row in rows]
    assert sum(counts) == (15 if "--power" in mode else 5), result.stdout
    assert not any("refused" in row for row in rows), rows


def test_a_disk_without_power_keeps_what_was_synced(tmp_path):
    """A file that is renamed before it is synced is empty; one that is synced first is whole."""
    part, file = f"{tmp_path}/part", f"{tmp_path}/file"

    def replay(*kinds: int, policy: str):
        calls = {
            0: power.Call(0, part, "", 0o101, b""),
            1: power.Call(1, part, "", 0, b"rows"),
            2: power.Call(2, part, "", 0, b""),
            3: power.Call(3, part, file, 0, b""),
        }
        before: power.Folder = {file: b"old"}
        return power.replay(before, [calls[kind] for kind in kinds], policy, tmp_path)

    nothing, content, names = power.POLICIES
    assert replay(0, 1, 3, policy=nothing) == {file: b"rows"}
    assert replay(0, 1, 3, policy=content) == {file: b""}
    assert replay(0, 1, 2, 3, policy=content) == {file: b"rows"}
    assert replay(0, 1, 2, 3, policy=names) == {file: b"old", part: b"rows"}
