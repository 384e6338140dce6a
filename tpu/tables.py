"""Compile the rows of docs/scaling.md's tables, and write the tables.

    PYTHONPATH=.venv-libtpu python -m tpu.tables [--only TEXT | --draw]

`tpu.aot` compiles every row of `tables.toml`, some minutes each. Each result is saved in
`compiled.json` at once, so that the program may be stopped. `--only` compiles the rows whose label
or command contains TEXT.
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
from tpu import topology as topology_lib
from tpu.aot import expected
from tpu.hlo import Collective
from tpu.plan import amount
from utils.command_line import Parser

_HERE = Path(__file__).parent
ROWS = tomllib.loads((_HERE / "tables.toml").read_text(encoding="utf-8"))
COMPILED = _HERE / "compiled.json"
DOCS = _HERE.parent / "docs" / "scaling.md"


class Compiled(NamedTuple):
    """The numbers of a `tpu.aot.Report` that the tables show, per chip."""

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


def load_compiled() -> dict[str, Compiled]:
    """Return the saved results by command."""
    rows = json.loads(COMPILED.read_text(encoding="utf-8")) if COMPILED.exists() else {}
    return {command: Compiled(**row) for command, row in rows.items()}


def compile_row(command: str) -> Compiled:
    """Run `tpu.aot` in its own process, because libtpu takes one slice per process.

    Raises:
      ValueError: with its message, if it refuses the command.
    """
    arguments = [sys.executable, "-m", "tpu.aot", *shlex.split(command), "--json"]
    process = subprocess.run(arguments, capture_output=True, text=True)
    if not process.stdout:
        message = process.stderr.strip().splitlines()[-1]
        raise ValueError(message.partition(": error: ")[2] or message)
    report = json.loads(process.stdout.splitlines()[-1])
    return Compiled(
        jax=version("jax"),
        libtpu=version("libtpu"),
        received=sum(Collective(**fields).wire_bytes for fields in report["collectives"]),
        least=sum(report["bound"].values()),
        **{name: report[name] for name in Compiled._fields if name in report},
    )


def chip_of(command: str) -> topology_lib.Chip:
    """Return the chip of a command."""
    arguments = shlex.split(command)
    return topology_lib.find(arguments[arguments.index("--topology") + 1]).chip


def published_mfu(row: dict[str, Any]) -> float:
    """Return the MFU of a published rate by our FLOPs, which count half of attention's square."""
    name, *changes = shlex.split(row["command"])
    del changes[changes.index("--topology") : changes.index("--topology") + 2]
    config = overrides.apply(find_config(name), changes)
    peak = metrics.PEAK_FLOPS[chip_of(row["command"]).device_kind]
    return row["tokens_per_second"] * metrics.flops_per_token(config) / peak


def mfu(command: str, compiled: Compiled, seconds: float) -> float:
    """Return the MFU of a step of this duration."""
    return compiled.model_flops / metrics.PEAK_FLOPS[chip_of(command).device_kind] / seconds


def mfu_bounds(command: str, compiled: Compiled) -> tuple[float, float]:
    """Return MFU with perfect overlap and without overlap."""
    times = compiled.seconds.values()
    return mfu(command, compiled, max(times)), mfu(command, compiled, sum(times))


def expected_mfu(command: str, compiled: Compiled) -> float:
    """Return MFU at the time that `tpu.aot` expects."""
    return mfu(command, compiled, expected(compiled.seconds))


def fit(results: dict[str, Compiled]) -> tuple[float, float]:
    """Fit `tpu.aot.EXPECTED` to the published times of the rows marked `fitted`.

    The sum of squared relative errors is least.
    """
    shares = []
    for row in ROWS["published"]:
        if row["fitted"] and row["command"] in results:
            compiled = results[row["command"]]
            compute, total = compiled.seconds["compute"], sum(compiled.seconds.values())
            measured = mfu(row["command"], compiled, 1.0) / published_mfu(row)
            shares.append((compute / measured, (total - compute) / measured))
    compute_factor, rest_factor = np.linalg.lstsq(np.array(shares), np.ones(len(shares)))[0]
    return float(compute_factor), float(rest_factor)


def _memory(command: str, compiled: Compiled) -> str:
    chip = chip_of(command)
    if compiled.peak is None or compiled.peak > chip.memory:
        return f"more than {chip.memory_gib} GiB, **does not fit**"
    return f"{compiled.peak / 2**30:.1f} of {chip.memory_gib} GiB"


def published_table(results: dict[str, Compiled]) -> Iterator[str]:
    """Yield the lines of the Markdown table of published results."""
    yield (
        "| published | command (`python -m tpu.aot ...`) | memory | bounds | expected | recounted |"
    )
    yield "|---|---|---|---|---|---|"
    for row in ROWS["published"]:
        command = row["command"]
        if compiled := results.get(command):
            best, worst = mfu_bounds(command, compiled)
            label = f"{row['label']}{' †' if row['fitted'] else ''}"
            cells = (label, f"`{command}`", _memory(command, compiled))
            mfus = f"{expected_mfu(command, compiled):.1%} | {published_mfu(row):.1%}"
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} | {mfus} |"


def compiled_table(results: dict[str, Compiled]) -> Iterator[str]:
    """Yield the lines of the Markdown table of compiled steps."""
    yield "| size, row, chip | command | memory | received | seconds | MFU |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS["compiled"]:
        command = row["command"]
        if compiled := results.get(command):
            best, worst = mfu_bounds(command, compiled)
            received = f"{amount(compiled.received)}, {compiled.received / compiled.least:.1f}x"
            seconds = ", ".join(
                f"{x:.0f}" if x > 99 else f"{x:.2g}" for x in compiled.seconds.values() if x
            )
            cells = (row["label"], f"`{command}`", _memory(command, compiled), received, seconds)
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} |"


def draw_tables(page: str, results: dict[str, Compiled]) -> str:
    """Return the text of docs/scaling.md with new tables."""
    for name, table in (("published", published_table), ("compiled", compiled_table)):
        start, end = f"<!-- python -m tpu.tables: {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(start)
        page = before + start + "\n".join(table(results)) + "\n" + rest[rest.index(end) :]
    return page


def main() -> int:
    """Run the command line; exit with status 2 after one line for a user's mistake."""
    parser = Parser(prog="python -m tpu.tables", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="compile rows that contain TEXT")
    parser.add_argument("--draw", action="store_true", help="compile nothing")
    arguments = parser.parse_args()
    rows = (*ROWS["published"], *ROWS["compiled"])
    for row in () if arguments.draw else rows:
        command = row["command"]
        if arguments.only not in f"{row['label']} {command}":
            continue
        print(command, flush=True)
        try:
            compiled = compile_row(command)
        except ValueError as error:
            parser.error(str(error))
        # Read again: another process may have saved a row in the meantime.
        results = load_compiled() | {command: compiled}
        commands = [row["command"] for row in rows if row["command"] in results]
        fields = {command: results[command]._asdict() for command in commands}
        COMPILED.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    DOCS.write_text(draw_tables(DOCS.read_text(encoding="utf-8"), load_compiled()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
