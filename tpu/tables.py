"""Makes docs/scaling.md's tables of compiled steps again.

    PYTHONPATH=.venv-libtpu python -m tpu.tables [--only TEXT | --draw]

Every row of `tables.toml` is compiled by `tpu.aot`, one after another, some minutes each. What is
found is kept in `compiled.json` as it comes, and the tables are drawn of that: it may be stopped,
and `--only` compiles the rows whose name or command has TEXT in it.
"""

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs import find_config
from experiment import metrics, overrides
from settings.commands import Parser
from tpu import topology as topology_lib
from tpu.aot import expected
from tpu.hlo import Collective
from tpu.plan import amount

_HERE = Path(__file__).parent
ROWS = tomllib.loads((_HERE / "tables.toml").read_text(encoding="utf-8"))
KEPT = _HERE / "compiled.json"
DOCS = _HERE.parent / "docs" / "scaling.md"


class Compiled(NamedTuple):
    """What is kept of a row: `tpu.aot.Report`, per chip."""

    jax: str
    libtpu: str
    peak: int | None
    received: float
    least: float
    flops: float
    model_flops: float
    memory_traffic: float
    seconds: dict[str, float]
    compile_seconds: float


def kept() -> dict[str, Compiled]:
    """What was compiled, by command."""
    found = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return {command: Compiled(**one) for command, one in found.items()}


def compile_row(command: str) -> Compiled:
    """Runs `tpu.aot` in a process of its own: libtpu takes one slice a process.

    Raises:
      ValueError: if it refuses.
    """
    words = [sys.executable, "-m", "tpu.aot", *shlex.split(command), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if not done.stdout:
        said = done.stderr.strip().splitlines()[-1]
        raise ValueError(said.partition(": error: ")[2] or said)
    report = json.loads(done.stdout.splitlines()[-1])
    own = {name: report[name] for name in Compiled._fields if name in report}
    return Compiled(
        jax=version("jax"),
        libtpu=version("libtpu"),
        received=sum(Collective(**each).wire_bytes for each in report["collectives"]),
        least=sum(report["bound"].values()),
        **own,
    )


def chip_of(command: str) -> topology_lib.Chip:
    """The chip that a command is for."""
    words = shlex.split(command)
    return topology_lib.find(words[words.index("--topology") + 1]).chip


def published_mfu(row: dict[str, Any]) -> float:
    """A published rate by our count of FLOPs, which takes half of attention's square."""
    name, *words = shlex.split(row["command"])
    del words[words.index("--topology") : words.index("--topology") + 2]
    config = overrides.apply(find_config(name), words)
    peak = metrics.PEAK_FLOPS[chip_of(row["command"]).device_kind]
    return row["tokens_per_second"] * metrics.flops_per_token(config) / peak


def bounds(command: str, one: Compiled) -> tuple[float, float]:
    """MFU with perfect overlap, and one after another."""
    ideal = _ideal(command, one)
    return ideal / max(one.seconds.values()), ideal / sum(one.seconds.values())


def fit(found: dict[str, Compiled]) -> tuple[float, float]:
    """`tpu.aot.EXPECTED`: nearest, in proportion, to the published times of the rows marked so."""
    parts = []
    for row in ROWS["published"]:
        if row["fitted"] and row["command"] in found:
            one = found[row["command"]]
            compute, rest = one.seconds["compute"], sum(one.seconds.values())
            measured = _ideal(row["command"], one) / published_mfu(row)
            parts.append((compute / measured, (rest - compute) / measured))
    of_compute, of_rest = np.linalg.lstsq(np.array(parts), np.ones(len(parts)))[0]
    return float(of_compute), float(of_rest)


def _ideal(command: str, one: Compiled) -> float:
    """Seconds of the model's FLOPs at the chip's peak."""
    return one.model_flops / metrics.PEAK_FLOPS[chip_of(command).device_kind]


def expected_mfu(command: str, one: Compiled) -> float:
    """As `tpu.aot` expects it."""
    return _ideal(command, one) / expected(one.seconds)


def _memory(command: str, one: Compiled) -> str:
    chip = chip_of(command)
    if one.peak is None or one.peak > chip.memory:
        return f"more than {chip.memory_gib} GiB, **does not fit**"
    return f"{one.peak / 2**30:.1f} of {chip.memory_gib} GiB"


def published_table(found: dict[str, Compiled]) -> Iterator[str]:
    """Lines of Markdown."""
    command = "command (`python -m tpu.aot ...`)"
    yield f"| published | {command} | memory | bounds | expected | recounted |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS["published"]:
        command = row["command"]
        if command in found:
            best, worst = bounds(command, found[command])
            label = f"{row['label']}{' †' if row['fitted'] else ''}"
            cells = (label, f"`{command}`", _memory(command, found[command]))
            mfus = f"{expected_mfu(command, found[command]):.1%} | {published_mfu(row):.1%}"
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} | {mfus} |"


def compiled_table(found: dict[str, Compiled]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| size, row, chip | command | memory | received | seconds | MFU |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS["compiled"]:
        command = row["command"]
        if command in found:
            one = found[command]
            best, worst = bounds(command, one)
            received = f"{amount(one.received)}, {one.received / one.least:.1f}x"
            seconds = ", ".join(
                f"{x:.0f}" if x > 99 else f"{x:.2g}" for x in one.seconds.values() if x
            )
            cells = (row["label"], f"`{command}`", _memory(command, one), received, seconds)
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} |"


def drawn(text: str, found: dict[str, Compiled]) -> str:
    """The text of docs/scaling.md with its tables made anew."""
    tables = {"published": published_table, "compiled": compiled_table}
    for name, table in tables.items():
        start, end = f"<!-- python -m tpu.tables: {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        text = before + start + "\n".join(table(found)) + "\n" + rest[rest.index(end) :]
    return text


def main() -> int:
    """Command line; exit status 2 after one line for a user's mistake."""
    parser = Parser(prog="python -m tpu.tables", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows that have TEXT in them")
    parser.add_argument("--draw", action="store_true", help="compile nothing")
    arguments = parser.parse_args()
    rows = (*ROWS["published"], *ROWS["compiled"])
    known = [row["command"] for row in rows]
    chosen = [
        row["command"]
        for row in rows
        if not arguments.draw and arguments.only in f"{row['label']} {row['command']}"
    ]
    for command in chosen:
        print(command, flush=True)
        try:
            one = compile_row(command)
        except ValueError as error:
            parser.error(str(error))
        # What else was compiled in the meantime stays.
        found = kept() | {command: one}
        lines = {each: found[each]._asdict() for each in known if each in found}
        KEPT.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    DOCS.write_text(drawn(DOCS.read_text(encoding="utf-8"), kept()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
