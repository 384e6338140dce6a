"""Where a step's time goes: the operations that take longest."""

from collections.abc import Iterator

from benchmarks import profiling, shapes
from benchmarks.gpu.fitting import compile_step, fitted
from benchmarks.pieces import Setting
from benchmarks.record import Result

STEPS, LONGEST = 3, 10


def measure(setting: Setting) -> Iterator[Result | str]:
    """Of `paper_2b` on rows of 4,096 tokens, the first way that fits."""
    shape = shapes.on_gpu(setting.scale)["paper_2b"]
    for tried in shape.tried:
        program = compile_step(fitted(shape.config, tried))
        if program.fits:
            break
    else:
        yield "paper_2b does not fit into this device's memory"
        return
    spent = profiling.traced(program.updates(), STEPS)
    total = sum(spent.values())
    sources = profiling.sources_of(program.text())
    milliseconds = 1e3 * total / STEPS
    yield f"{tried.rows} rows, remat={tried.remat}: {milliseconds:.1f} ms of operations a step"
    for name, seconds in spent.most_common(LONGEST):
        yield Result(
            name=f"{name}: {_end(sources[name])}" if name in sources else name,
            ratio="share of the time of all operations",
            least=seconds / total,
            median=seconds / total,
            measured={"ms a step": 1e3 * seconds / STEPS},
        )


def _end(path: str) -> str:
    return "/".join(path.split("/")[-3:])
