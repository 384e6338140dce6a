"""Where a step's time goes: its matrix products, and what is not one, by where it stands."""

from collections import Counter
from collections.abc import Iterator

from benchmarks import profiling, shapes
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import Sweep

STEPS = 5
# By a part of the path that the compiled program says; the first that is in it.
PARTS = {
    "attention": "attention, but for products not merged with it",
    "rope": "rotation",
    "loss": "loss",
    "jvp": "norms, gates, sums and copies of the layers",
}
PRODUCTS, OPTIMIZER = "matrix products", "AdamW and the norm of the gradient"
KEPT = "memory made for what the backward pass reads"


def measure(setting: Setting) -> Iterator[Result]:
    """Of the demo, 10M and 30M parameters."""
    for name, config in shapes.on_cpu().items():
        sweep = Sweep([config])
        compiled = sweep.compiled()
        spent = profiling.traced(sweep.updates(compiled), STEPS)
        sources = profiling.sources_of(compiled.as_text())
        parts: Counter[str] = Counter()
        for operation, seconds in spent.items():
            parts[part(sources.get(operation, ""))] += seconds
        total = sum(parts.values())
        for found, seconds in parts.most_common():
            yield Result(
                name=f"{name}: {found}",
                ratio="share of the time of all operations",
                least=seconds / total,
                median=seconds / total,
                measured={"ms a step": 1e3 * seconds / STEPS},
            )


def part(path: str) -> str:
    """Of a step that an operation belongs to, by where the program says it comes from.

    What has no path is what a loop over layers keeps for the backward pass, set to zero first.
    """
    if path.endswith("dot_general"):
        return PRODUCTS
    if not path:
        return KEPT
    return next((name for key, name in PARTS.items() if key in path), OPTIMIZER)
