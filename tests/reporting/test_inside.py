"""Zeros of the empirical B(m), read from synthetic probe files."""

import math

import numpy as np

from reporting import inside
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
            file = dict(zero_low_LN=file["zero_LN"], zero_high_LN=file["zero_LN"]) | file
            file = dict(step=10, distances_M=np.arange(1, 128)) | file
            np.savez(run.path / "probes" / "matching_keys.npz", **file)
    return read(folder)


def test_zeros_are_shown_beside_effective_context(tmp_path):
    members = inside.probed(sweep(tmp_path))
    assert [member.label for member in members] == ["base=10"]
    table = inside.zeros_table(members)
    ((_, cells),) = table.lines
    assert dict(zip(table.heads, cells, strict=True)) == {
        "member": "base=10",
        "L50 [95% CI]": str(members[0].estimates["kv"]),
        "zero of B(m) of each head": "21.5, > 127, 0, 7",
        # 32 pairs, the slowest turns once in 2 pi 10^(31/32) tokens.
        "quarter period": f"{math.pi / 2 * 10 ** (31 / 32):.3g}",
        "full period": f"{2 * math.pi * 10 ** (31 / 32):.3g}",
    }
    lines = inside.draw_zeros(members).axes[0].get_lines()
    circles = [float(np.ravel(line.get_ydata())[0]) for line in lines if line.get_marker() == "o"]
    assert {21.5, 7.0} < set(circles)


def test_zeros_of_other_checkpoints_are_ignored(tmp_path):
    assert inside.probed(sweep(tmp_path, step=5)) == []


def test_gains_are_summed_by_octaves_of_periods(tmp_path):
    """Periods 5, 6, 40, 300 and none: octaves from 4, from 32, and all beyond 128 as one."""
    members = sweep(tmp_path)[:1]
    inv_freq_LNR = 2 * np.pi / np.array([5.0, 6, 40, 300, math.inf]).reshape(1, 1, 5)
    amplitude_3LNR = np.tile(np.array([1.0, 2, 4, 2, 1]), (3, 1, 1, 1))
    arrays = dict(step=10, inv_freq_LNR=inv_freq_LNR, amplitude_3LNR=amplitude_3LNR)
    np.savez(members[0].runs[0].path / "probes" / "frequency_use.npz", **arrays)
    bars = [
        bar
        for bar in inside.draw_zeros(members).axes[0].patches
        if bar.get_alpha() and bar.get_width()
    ]
    widths = {round(math.log2(bar.get_y() / 1.06)): bar.get_width() for bar in bars}
    widest = max(widths.values())
    assert {octave: width / widest for octave, width in widths.items()} == {2: 0.75, 5: 1, 7: 0.75}
    (line,) = inside.zeros_table(members).lines
    # Half of 10: 1 + 2 up to 6 tokens, 7 up to 40.
    assert "40" in line[1]
