"""Certified smallest bases that take longer than a second, kept in `smallest_bases.toml`.

`python -m ropewalk.theory.smallest_bases` computes the numbers of the file again (half an hour);
for more lengths, first write them into the file with any number.
"""

import contextlib
import functools
import tomllib
from pathlib import Path

from ropewalk.theory import bound

PATH = Path(__file__).with_suffix(".toml")
QUICK = 2**12  # tokens; bounds up to here take less than half a second


def smallest_base(head_dim: int, length: int) -> float | None:
    """Return the certified smallest base of plain RoPE for `length` tokens.

    None if it would take longer than a second and is not in the file, or if heads of one or two
    pairs have none that float64 can decide.
    """
    known = _table().get(str(head_dim), {}).get(str(length))
    if known is None and length <= QUICK:
        with contextlib.suppress(ValueError, ArithmeticError):
            known = bound.smallest(bound.pairs_of(head_dim), [length])[0].high
    return known


@functools.cache
def _table() -> dict[str, dict[str, float]]:
    return tomllib.loads(PATH.read_text(encoding="utf-8"))


def main() -> None:
    """Compute the file."""
    lines = ["# Smallest bases of plain RoPE by head_dim and length in tokens; written by"]
    lines += [
        "# `python -m ropewalk.theory.smallest_bases`, with a proof for each (docs/theory.md)."
    ]
    for head_dim, known in _table().items():
        lines += ["", f"[{head_dim}]"]
        for answer in bound.smallest(bound.pairs_of(int(head_dim)), list(map(int, known))):
            lines.append(f"{answer.length} = {answer.high!r}")
            print(head_dim, lines[-1], flush=True)
    PATH.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
