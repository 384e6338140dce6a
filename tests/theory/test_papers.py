"""Numbers of docs/papers.md are those of formulas that share no code with ropewalk."""

import contextlib
import io
import math
import re
import runpy
import shlex

import numpy as np
import pytest

from ropewalk.configs import load_configs
from tests.conftest import ROOT
from tests.in_process import call

DOCS = ROOT / "docs"
ROWS = {
    int(cells[0]): [cell.strip() for cell in cells]
    for cells in (
        line.strip("| ").split(" | ")
        for line in (DOCS / "papers.md").read_text(encoding="utf-8").splitlines()
    )
    if cells[0].strip().isdigit()
}
PAIRS = np.arange(64)


def sums(base, first, stop, theta=None):
    """B_m of first <= m < stop, from Eq. 16."""
    theta = base ** (-PAIRS / 64) if theta is None else theta
    parts = np.array_split(np.arange(first, stop), 1 + (stop - first) // 20_000)
    return np.concatenate([np.cos(np.outer(part, theta)).sum(axis=1) for part in parts])


def first_negative(base, stop, scale=1):
    theta = base ** (-PAIRS / 64) / scale
    return int(np.flatnonzero(sums(base, 0, stop, theta) < 0)[0])


def bound_of_scores(base, distance):
    """Eq. 14 by its start, 1 + 2 + ... + 64."""
    phases = np.exp(1j * distance * base ** (-PAIRS / 64))
    return sum(abs(phases[: n + 1].sum()) for n in range(64)) / (64 * 65 / 2)


def new_angles(base):
    return [sum(length * base ** (-i / 64) < 2 * math.pi for i in range(64))
            for length in (4096, 32768)]  # fmt: skip


def check_smallest(base, length):
    """B_m is negative somewhere just below the base, and positive everywhere just above."""
    assert sums(base * (1 + 1e-7), 0, length).min() > 0 > sums(base * (1 - 1e-7), 0, length).min()
    return f"{base:.8g}"


# Numbers of a row, which its command prints.
FORMULAS = {
    5: lambda: (
        [f"{new_angles(b)[i]} of " for b, i in ((1e4, 0), (1e4 * 8 ** (128 / 126), 0))]
        + [f"{new_angles(1e4)[1]} of them", f"{new_angles(1e4 * 8 ** (128 / 126))[1]} of them"]
    ),
    8: lambda: [f"{new_angles(500)[0]} of 64"],
    10: lambda: [f"{bound_of_scores(base, 16383):.3f}" for base in (1e4, 1e6)],
    14: lambda: [f"{first_negative(base, 2048)}" for base in (100, 500, 1e4)],
    15: lambda: [f"{first_negative(1e4, 4096)}"],
    16: lambda: [check_smallest(26952.3393, 4096)],
    44: lambda: [check_smallest(83763.8412, 8192)],
    45: lambda: ["4293.4", "4330.", "5602.", "5644.", "6018."],
    55: lambda: [f"{first_negative(1e4, 20_000, scale=8)}"],
    53: lambda: [f"{first_negative(1.024e9, 1_340_000)}"],
    57: lambda: ["proved for all distances"],
    83: lambda: ["628.32"],
}


@pytest.mark.parametrize("number", FORMULAS)
def test_a_command_prints_what_a_formula_says(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"`ropewalk ([^`]*)`", ROWS[number][-1])
    printed = call("-m", *shlex.split(commands[0]))
    for text in FORMULAS[number]():
        assert text in printed, (text, printed)


def ratio(i):
    """Ratio of neighboring pairs of Su 2023, Eq. 7, with k = 8 and exponent .625."""
    return math.exp(math.log(8) / 64**0.625 * ((i + 1) ** 0.625 - i**0.625))


def by_law(length):
    """Base of Gradient's law."""
    return f"{5e5 ** math.log(length / math.tau, 8192 / math.tau):.2f}"


def least_of_half_a_head():
    return sums(None, 0, 2**20, 1e4 ** (-PAIRS[:32] / 32)).min() + 32


def test_the_block_prints_what_formulas_say():
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(DOCS / "formulas.py"))
    printed = output.getvalue()
    differences = re.findall(r": (\de[-+]\d\d)$", printed, re.M)
    assert len(differences) == 11 and max(map(float, differences)) < 5e-16
    expected = {
        7: ["last pair of ntk_aware: 0.125"],
        33: ["method1 B_m < 0 within 15k, 30k: 0 0", "method2 B_m < 0 within 15k, 30k: 97 2554"],
        57: [f"least sum of (1 + cos): {least_of_half_a_head():.2f}"],
        66: [f"ntk_mixed: {ratio(0):.4f} {ratio(1):.4f} {ratio(63):.4f} product 8.0000"],
        72: [f"of Llama 3: {2 * math.ceil(64 * math.log(8192 / math.tau, 5e5))}"],
        73: [by_law(2**18)], 75: [by_law(2**22)],
        86: [f"temperature: {(0.1 * math.log(16) + 1) ** 2:.4f} "],
        87: [f" {(0.07 * math.log(16) + 1) ** 2:.4f}"],
    }  # fmt: skip
    for number, texts in expected.items():
        assert "block" in ROWS[number][-1]
        for text in texts:
            assert text in printed
            value = re.search(r"(\d*\.?\d+)( product .*)?$", text.strip())[1].removeprefix("0")
            assert value in "".join(ROWS[number][2:4]).replace(",", ""), (number, value)


def test_the_page_has_every_item_of_the_sources():
    """Their commands name configs and variants that exist."""
    assert list(ROWS) == list(range(1, 94))
    assert {len(cells) for cells in ROWS.values()} <= {4, 5}  # the last cell may be empty
    commands = [cells[4] for cells in ROWS.values() if len(cells) == 5]
    trained = {re.search(r"`ropewalk (?:train|sweep) (\w+) --help`", text) for text in commands}
    assert {match[1] for match in trained if match} <= load_configs().keys()
