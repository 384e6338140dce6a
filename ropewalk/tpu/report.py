"""Print the cost of a compiled step."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from ropewalk.tpu.cost import Report, peak_flops
from ropewalk.tpu.topology import MEMORY_FRACTION, Machines, Topology
from ropewalk.utils.messages import counted, size


def show(chips: Topology | Machines, report: Report, console: Console) -> None:
    """Print a report."""
    console.print(f"compiled in {report.compile_seconds:.0f} s")
    console.print("mesh: " + ", ".join(f"{axis}={size}" for axis, size in report.mesh.items()))
    is_compiled = report.peak is not None
    lines = [report.attention, *(_memory(chips, report) if is_compiled else ())]
    console.print(*lines, sep="\n", soft_wrap=True)
    if report.problem is not None:
        used = next((x for x in report.problem.splitlines() if "Used" in x), report.problem)
        console.print(f"does not fit: {used.strip()[:200]}; docs/scaling.md: Mesh by size")
    if is_compiled:
        console.print("", _collectives_table(report), "", sep="\n")
        console.print(*_times(chips, report), sep="\n", soft_wrap=True)


def _memory(chips: Topology | Machines, report: Report) -> Iterator[str]:
    yield f"{'arguments':<12} {size(report.arguments or 0):>12} per device"
    memory = size(chips.chip.usable_memory)
    if isinstance(chips, Machines):
        memory += f" (XLA_PYTHON_CLIENT_MEM_FRACTION={MEMORY_FRACTION})"
    fits = "does not fit" if report.problem else "fits"
    limit = "at most" if report.host_peak else "peak"
    yield f"{limit:<12} {size(report.peak or 0):>12} of {memory}: {fits}"
    if report.host_peak:
        yield f"{'host':<12} {size(report.host_peak):>12} per device, in its memory"


def _collectives_table(report: Report) -> Table:
    # FSDP needs two gathers of each weight and one scatter of its gradient.
    columns = ("kind", "count", "arrays", "received", "from other hosts", "FSDP needs")
    table = Table(
        *columns, title="a step's collectives, per device", title_justify="left", box=None
    )
    for kind in sorted({c.kind for c in report.collectives} | set(report.bound)):
        of_kind = [c for c in report.collectives if c.kind == kind]
        table.add_row(
            kind,
            str(sum(c.count for c in of_kind)),
            size(sum(c.count * c.num_bytes for c in of_kind)),
            size(sum(c.wire_bytes for c in of_kind)),
            size(sum(c.network_bytes for c in of_kind)),
            size(report.bound[kind]) if kind in report.bound else "-",
        )
    bound = sum(report.bound.values())
    ratio = f" ({report.received / bound:.2f}x)" if bound else ""
    received = size(report.received) + ratio
    table.add_row("total", "", "", received, size(report.from_other_hosts), size(bound))
    return table


def _times(chips: Topology | Machines, report: Report) -> Iterator[str]:
    """Yield the least times of a step, its time with and without overlap, and the run's cost."""
    chip, peak = chips.chip, peak_flops(chips)
    ratio = f"{report.flops / report.model_flops:.2f}x the model's"
    received = f"{size(report.received)} per device"
    details = {
        "compute": f"{report.flops:.3e} FLOP per device, {ratio}, at {peak / 1e12:.0f} TFLOP/s",
        "memory": f"{size(report.memory_traffic)} per device, at {chip.memory_bandwidth / 1e9:.0f} "
        "GB/s",
        "network": f"{received}, {chips.describe_links(report.collectives)}",
        "host": f"{size(report.host_traffic)} per device, at {chip.host_bandwidth / 1e9:.0f} GB/s",
    }
    for name, detail in details.items():
        if name != "host" or report.host_traffic:
            yield f"{name:<7} {report.seconds[name]:8.3f} s  {detail}"
    best, worst = max(report.seconds.values()), sum(report.seconds.values())
    ideal = report.model_flops / peak
    yield (
        f"a step takes {best:.3f} s (MFU {ideal / best:.0%}) with perfect overlap, "
        f"{worst:.3f} s (MFU {ideal / worst:.0%}) without overlap"
    )
    yield "neither includes stragglers, input and partly filled matrix units"
    hours = [report.steps * seconds / 3600 for seconds in (best, worst)]
    yield (
        f"{report.tokens / worst:,.0f} to {report.tokens / best:,.0f} tokens/s; "
        f"{counted(report.steps, 'steps')}: {hours[0]:,.2f} to {hours[1]:,.2f} hours, "
        f"{chips.num_chips * hours[0]:,.1f} to {chips.num_chips * hours[1]:,.1f} chip-hours"
    )
