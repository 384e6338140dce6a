"""Zeros of the empirical B(m), read from synthetic probe files."""

import math

import numpy as np

from ropewalk.reporting import inside
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read


def sweep(tmp_path, **arrays):
    """Make base=10, which recalls 20 tokens and has a probe file, and base=30 without one."""
    folder = make_sweep(tmp_path, ["base=10", "base=30"])
    for name, reach in (("base=10", 20), ("base=30", 60)):
        config = experiment(f"rope({name})")
        run = make_run(folder / name, config, answers(config, reach))
        if name == "base=10":
            (run.path / "probes").mkdir()
            file = dict(zero_LN=[[21.5, math.inf], [0.0, 7.0]]) | arrays
            file = dict(step=10, distances_M=np.arange(1, 128)) | file
            np.savez(run.path / "probes" / "matching_keys.npz", **file)
    return read(folder)


def test_zeros_are_shown_beside_effective_context(tmp_path):
    members = sweep(tmp_path)
    ((_, _, table),) = inside.zeros(members)
    ((_, cells),) = table.lines
    assert dict(zip(table.heads, cells, strict=True)) == {
        "member": "base=10",
        "L50 [95% CI]": str(members[0].estimates["kv"]),
        "zero of B(m) of each head": "21.5, > 127, 0, 7",
        # 32 pairs, the slowest turns once in 2 pi 10^(31/32) tokens.
        "quarter period": f"{math.pi / 2 * 10 ** (31 / 32):.0f}",
        "full period": f"{2 * math.pi * 10 ** (31 / 32):.0f}",
    }


def test_zeros_of_other_checkpoints_are_ignored(tmp_path):
    assert list(inside.zeros(sweep(tmp_path, step=5))) == []
