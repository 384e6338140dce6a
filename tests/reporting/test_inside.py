"""What probes wrote into runs, beside effective context; the arrays here are written by hand."""

import math

import numpy as np

from experiment.run import find_runs
from reporting import inside
from reporting import members as members_lib
from tests.reporting.helpers import answers, experiment, make_run, make_sweep


def sweep(tmp_path, **arrays):
    """base=10 sees 20 tokens and was looked into, base=30 was not."""
    folder = make_sweep(tmp_path, ["base=10", "base=30"])
    for name, reach in (("base=10", 20), ("base=30", 60)):
        config = experiment(f"rope({name})")
        run = make_run(folder / name, config, answers(config, reach))
        if name == "base=10":
            (run.path / "probes").mkdir()
            given = dict(zero_LN=[[21.5, math.inf], [0.0, 7.0]]) | arrays
            given = dict(zero_low_LN=given["zero_LN"], zero_high_LN=given["zero_LN"]) | given
            given = dict(step=10, distances_M=np.arange(1, 128)) | given
            np.savez(run.path / "probes" / "matching_keys.npz", **given)
    return members_lib.read(find_runs([folder]))


def test_zeros_stand_beside_effective_context(tmp_path):
    members = inside.looked_into(sweep(tmp_path))
    assert [member.label for member in members] == ["base=10"]
    table = inside.table(members)
    ((_, cells),) = table.lines
    assert dict(zip(table.heads, cells, strict=True)) == {
        "member": "base=10",
        "L50 [95% CI]": str(members[0].estimates["kv"]),
        "advantage ends, head by head": "21.5, > 127, 0, 7",
        # 32 pairs, the slowest turns once in 2 pi 10^(31/32) tokens.
        "quarter period": f"{math.pi / 2 * 10 ** (31 / 32):.3g}",
        "full period": f"{2 * math.pi * 10 ** (31 / 32):.3g}",
    }
    lines = inside.figure(members).axes[0].get_lines()
    circles = [float(np.ravel(line.get_ydata())[0]) for line in lines if line.get_marker() == "o"]
    assert {21.5, 7.0} < set(circles)


def test_another_checkpoint_is_not_what_the_page_is_about(tmp_path):
    assert inside.looked_into(sweep(tmp_path, step=5)) == []
