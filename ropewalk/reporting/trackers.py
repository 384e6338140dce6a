"""Results of evaluations for the dashboards of `train.tracking`."""

import math
import re
from collections.abc import Callable, Iterable

from ropewalk.evals.rows import Rows
from ropewalk.experiment.config import TRAINED, ExperimentConfig
from ropewalk.experiment.metrics import check_trackers, open_tracker
from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting.measurements import Measurement, measurements


def log_results(
    results: Iterable[tuple[RunDirectory, ExperimentConfig, Rows]], notice: Callable[[str], None]
) -> None:
    """Log the numbers of evaluations to the trackers with which their runs were trained.

    Args:
      results: run, its config at the evaluated step, and the rows of that step.
      notice: called with one line for each tracker that is not installed.
    """
    for run, config, rows in results:
        for name in run.config.train.tracking:
            try:
                check_trackers([name])
            except ValueError as error:
                notice(f"{run.path}: results are not logged: {error}")
                continue
            row = {name: x for m in measurements(rows, config) for name, x in _numbers(m).items()}
            tracker = open_tracker(name, run)
            tracker.log_results(row | {"step": int(rows["step"].max())})
            tracker.close()


def _numbers(measured: Measurement) -> dict[str, float]:
    """Return the numbers of a measurement: `kv/128/l50`, the columns of results.csv."""
    numbers = measured.numbers
    if measured.kind == "retrieval" and measured.estimate.has_l50:
        numbers["l50"] = measured.estimate.l50
    variant = "" if measured.variant == TRAINED else f"/{measured.variant}"
    prefix = re.sub(r"[^-\w.=/]+", "_", f"{measured.task}/{measured.length}{variant}")
    return {f"{prefix}/{name}": float(x) for name, x in numbers.items() if math.isfinite(x)}
