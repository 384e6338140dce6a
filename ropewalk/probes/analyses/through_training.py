"""Numbers of the other probes at each checkpoint of a run.

Step 0 is initialized again from the config's seed; runs with `start_from` have no step 0.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ropewalk.experiment import load
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.probes import all_probes
from ropewalk.probes.analyses import matching_keys
from ropewalk.probes.probe import Number, Probe, draw_band, format_number
from ropewalk.probes.subject import Subject, untrained
from ropewalk.utils.figures import mark_handle, token_axis

_L50 = "L50 (tokens)"
# The numbers that are drawn: shares in the upper panel, distances in the lower one.
_SHARES = "answered correctly", "retrieval, highest of heads", "prefix matching, highest of heads"
_TOKENS = _L50, matching_keys.ZERO
_MARKERS = dict(zip((*_SHARES, *_TOKENS), "os^DP", strict=True))


class ThroughTraining(Probe):
    """Numbers of the default probes, and L50, at each checkpoint.

    Attributes:
      step_C: number of updates, ascending.
      name_X: names of the numbers, with units.
      value_3CX: the numbers and the ends of their 95% intervals over documents, NaN if there is
        none.
    """

    title = "Through training"
    caption = """
    At every checkpoint, and before training. Above: the share of questions answered correctly, and
    the highest score of a head. Below: L50, and the zero of the empirical B(m), largest over heads;
    points beyond the longest distance tested, or before the task is learned, are not drawn. Bands
    are 95% intervals over documents; first seed only."""
    y_labels = "share", "tokens (log scale)"
    x_label = "updates"
    sharey = "row"
    references = tuple(
        mark_handle(name.removesuffix(" (tokens)").partition(",")[0], marker)
        for name, marker in _MARKERS.items()
    )

    @classmethod
    def measure(cls, subject: Subject) -> "ThroughTraining":
        """Run the default probes at every checkpoint."""
        runs = checkpoints(subject.run)
        numbers = [_default_numbers(dataclasses.replace(subject, run=run)) for run in runs]
        return cls(
            step_C=np.array([run.step for run in runs]),
            name_X=np.array(list(numbers[0])),
            value_3CX=np.array([[x[:3] for x in row.values()] for row in numbers]).transpose(
                2, 0, 1
            ),
        )

    def values(self, name: str) -> np.ndarray:
        """Return a number at each checkpoint, with its interval, `[3, C]`."""
        return self.value_3CX[:, :, self.name_X.tolist().index(name)]

    def halfway_step(self, name: str) -> float:
        """Return the first checkpoint at which a number was half-way from its first to its last.

        NaN counts as 0. NaN if the last value is not larger than the first.
        """
        value_C = np.nan_to_num(self.values(name)[0], nan=0, posinf=math.inf)
        first, last = value_C[[0, -1]]
        if not first < last:
            return math.nan
        return float(self.step_C[(value_C >= (first + last) / 2).argmax()])

    def numbers(self) -> dict[str, Number]:
        """Return when each number of the figure was half-way."""
        return {
            f"{name.removesuffix(' (tokens)')}: half-way after (updates)": Number(
                self.halfway_step(name)
            )
            for name in _MARKERS
        }

    def lines(self) -> list[dict[str, str]]:
        """Return a line per checkpoint."""
        return [
            {"updates": str(step)}
            | {name: format_number([Number(*self.values(name)[:, index])]) for name in _MARKERS}
            for index, step in enumerate(self.step_C)
        ]

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw shares above and distances below."""
        above, below = axes
        for name, marker in _MARKERS.items():
            value_3C = np.where(np.isfinite(self.values(name)), self.values(name), np.nan)
            ax = above if name in _SHARES else below
            draw_band(ax, self.step_C, value_3C, color, marker=marker, ms=4)
        above.set_ylim(-0.03, 1.03)
        token_axis(below.yaxis)


def checkpoints(run: LoadedRun) -> list[LoadedRun]:
    """Return the run before training and at each saved step up to its own."""
    runs = [load(run.directory.path, step) for step in run.directory.steps() if step < run.step]
    first = [] if run.directory.config.start_from else [untrained(run)]
    return [*first, *runs, run]


def _default_numbers(subject: Subject) -> dict[str, Number]:
    """Return the numbers of the default probes, and L50."""
    numbers = {}
    for probe in all_probes().values():
        if probe.by_default:
            numbers |= probe.measure(subject).numbers()
    return numbers | {_L50: Number(*subject.l50)}
