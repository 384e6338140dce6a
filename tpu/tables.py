"""Compile the rows of the tables in docs/scaling.md and docs/gpu.md, and write the tables.

    PYTHONPATH=.venv-libtpu python -m tpu.tables [--only TEXT | --draw]
    .venv-cuda/bin/python -m tpu.tables --only gpu

`tpu.aot` compiles every row of `tables.toml`, some minutes each. Each result is saved in
`compiled.json` at once, so that the program may be stopped. `--only` compiles the rows whose table,
label or command contains TEXT.
"""

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs import find_config
from experiment import metrics, overrides
from tpu.command import find_topology
from tpu.cost import expected, peak_flops
from tpu.gpu import Machines
from tpu.hlo import Collective
from tpu.memory import amount
from tpu.topology import Topology
from utils.command_line import Parser, exit_with

_HERE = Path(__file__).parent
ROWS = tomllib.loads((_HERE / "tables.toml").read_text(encoding="utf-8"))
COMPILED = _HERE / "compiled.json"
_DOCS = _HERE.parent / "docs"
DOCS = {
    "published": _DOCS / "scaling.md",
    "compiled": _DOCS / "scaling.md",
    "gpu": _DOCS / "gpu.md",
}


class Compiled(NamedTuple):
    """The numbers of a `tpu.cost.Report` that the tables show, per chip."""

    jax: str
    libtpu: str | None
    peak: int | None
    received: float
    least: float
    flops: float
    model_flops: float
    memory_traffic: float
    seconds: dict[str, float]
    compile_seconds: float
    from_other_hosts: float = 0
    launches: int = 1
    attention: str = ""


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
    collectives = [Collective(**fields) for fields in report["collectives"]]
    return Compiled(
        jax=version("jax"),
        libtpu=None if isinstance(topology_of(command), Machines) else version("libtpu"),
        received=sum(collective.wire_bytes for collective in collectives),
        from_other_hosts=sum(collective.network_bytes for collective in collectives),
        least=sum(report["bound"].values()),
        **{name: report[name] for name in Compiled._fields if name in report},
    )


def topology_of(command: str) -> Topology | Machines:
    """Return the chips of a command."""
    arguments = shlex.split(command)
    return find_topology(arguments[arguments.index("--topology") + 1])


def published_mfu(row: dict[str, Any]) -> float:
    """Return the MFU of a published rate by our FLOPs, which count half of attention's square."""
    name, *changes = shlex.split(row["command"])
    del changes[changes.index("--topology") : changes.index("--topology") + 2]
    config = overrides.apply(find_config(name), changes)
    rate = row["tokens_per_second"] * metrics.flops_per_token(config)
    return rate / peak_flops(topology_of(row["command"]))


def mfu(command: str, compiled: Compiled, seconds: float) -> float:
    """Return the MFU of a step of this duration."""
    return compiled.model_flops / peak_flops(topology_of(command)) / seconds


def mfu_bounds(command: str, compiled: Compiled) -> tuple[float, float]:
    """Return MFU with perfect overlap and without overlap."""
    times = compiled.seconds.values()
    return mfu(command, compiled, max(times)), mfu(command, compiled, sum(times))


def expected_mfu(command: str, compiled: Compiled) -> float:
    """Return MFU at the time that `tpu.aot` expects."""
    return mfu(command, compiled, expected(compiled.seconds))


def published_seconds(row: dict[str, Any], compiled: Compiled) -> float:
    """Return the published time of a step."""
    return mfu(row["command"], compiled, 1.0) / published_mfu(row)


def accepted_rows(results: dict[str, Compiled]) -> list[dict[str, Any]]:
    """Return the published rows whose steps libtpu accepts; of others no traffic is known."""
    rows = ((row, results.get(row["command"])) for row in ROWS["published"])
    return [row for row, compiled in rows if compiled and compiled.peak is not None]


def fit(rows: Sequence[dict[str, Any]], results: dict[str, Compiled]) -> tuple[float, float]:
    """Fit `tpu.cost.EXPECTED` to published times; the sum of squared relative errors is least."""
    shares = []
    for row in rows:
        compiled = results[row["command"]]
        compute, total = compiled.seconds["compute"], sum(compiled.seconds.values())
        seconds = published_seconds(row, compiled)
        shares.append((compute / seconds, (total - compute) / seconds))
    factors = np.linalg.lstsq(np.array(shares), np.ones(len(shares)))[0]
    return float(factors[0]), float(factors[1])


def leave_one_out(results: dict[str, Compiled]) -> dict[str, float]:
    """Return published time over the time that a fit to all other rows expects, by command."""
    rows, ratios = accepted_rows(results), {}
    for row in rows:
        compiled = results[row["command"]]
        factors = fit([other for other in rows if other is not row], results)
        ratios[row["command"]] = published_seconds(row, compiled) / expected(
            compiled.seconds, factors
        )
    return ratios


def _memory(command: str, compiled: Compiled) -> str:
    topology = topology_of(command)
    memory = topology.usable_memory
    if compiled.peak is None:  # of the chip, or of its host
        return "**does not fit**"
    limit = "≤ " if compiled.seconds["host"] else ""
    text = f"{limit}{compiled.peak / 2**30:.1f} of {memory / 2**30:.4g} GiB"
    is_refused = isinstance(topology, Machines) and compiled.peak > memory
    return f"{text}, **does not fit**" if is_refused else text


def published_table(results: dict[str, Compiled]) -> Iterator[str]:
    """Yield the lines of the Markdown table of published results."""
    yield (
        "| published | command (`python -m tpu.aot ...`) | memory | bounds | expected | recounted "
        "| time, over that expected from the other rows |"
    )
    yield "|---|---|---|---|---|---|---|"
    errors = leave_one_out(results)
    for row in ROWS["published"]:
        command = row["command"]
        if compiled := results.get(command):
            bounds, likely, error = "-", "-", "-"
            if command in errors:
                best, worst = mfu_bounds(command, compiled)
                bounds, likely = f"{best:.0%}–{worst:.0%}", f"{expected_mfu(command, compiled):.1%}"
                error = f"{errors[command] - 1:+.0%}"
            cells = (row["label"], f"`{command}`", _memory(command, compiled), bounds, likely)
            yield f"| {' | '.join(cells)} | {published_mfu(row):.1%} | {error} |"


def compiled_table(results: dict[str, Compiled]) -> Iterator[str]:
    """Yield the lines of the Markdown table of compiled steps."""
    yield "| size, row, chip | command | memory | received | seconds | MFU |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS["compiled"]:
        command = row["command"]
        if compiled := results.get(command):
            best, worst = mfu_bounds(command, compiled)
            received = f"{amount(compiled.received)}, {compiled.received / compiled.least:.1f}x"
            seconds = _seconds(compiled)
            cells = (row["label"], f"`{command}`", _memory(command, compiled), received, seconds)
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} |"


def _seconds(compiled: Compiled) -> str:
    return ", ".join(f"{x:.0f}" if x > 99 else f"{x:.2g}" for x in compiled.seconds.values() if x)


def gpu_table(results: dict[str, Compiled]) -> Iterator[str]:
    """Yield the lines of the Markdown table of steps compiled for GPUs."""
    yield "| model | command | memory | attention | kernels | received | seconds | MFU |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in ROWS["gpu"]:
        command = row["command"]
        if compiled := results.get(command):
            best, worst = mfu_bounds(command, compiled)
            received = amount(compiled.received)
            if compiled.from_other_hosts:
                received += f", {amount(compiled.from_other_hosts)} between hosts"
            cells = (
                *(row["label"], f"`{command}`", _memory(command, compiled)),
                *(compiled.attention.removeprefix("attention: "), f"{compiled.launches:,}"),
                *(received if compiled.received else "nothing", _seconds(compiled)),
            )
            yield f"| {' | '.join(cells)} | {best:.0%}–{worst:.0%} |"


TABLES = {"published": published_table, "compiled": compiled_table, "gpu": gpu_table}


def draw_tables(page: str, results: dict[str, Compiled]) -> str:
    """Return the text of a page with new tables."""
    for name, table in TABLES.items():
        if f"<!-- python -m tpu.tables: {name} -->" not in page:
            continue
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
    rows = {row["command"]: f"{table} {row['label']}" for table in TABLES for row in ROWS[table]}
    for command, label in () if arguments.draw else rows.items():
        if arguments.only not in f"{label} {command}":
            continue
        print(command, flush=True)
        try:
            compiled = compile_row(command)
        except ValueError as error:
            parser.refuse(error)
        # Read again: another process may have saved a row in the meantime.
        results = load_compiled() | {command: compiled}
        fields = {name: results[name]._asdict() for name in rows if name in results}
        COMPILED.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    for page in set(DOCS.values()):
        page.write_text(draw_tables(page.read_text(encoding="utf-8"), load_compiled()), "utf-8")
    return 0


if __name__ == "__main__":
    exit_with(main)
