"""How a run came to be what it is: the numbers of other probes at each of its checkpoints.

Step 0 is made again from the config's seed; it is left out of runs that started from others.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiment import load
from experiment.loaded import LoadedRun
from probes import all_probes
from probes.figures import COLORS, first_column, panels
from probes.page import said
from probes.probe import Number, Probe
from probes.subject import Subject, untrained
from reporting.style import handle, token_axis

_L50 = "L50 (tokens)"
# What is drawn, of all that is found.
_SHARES = "answered right", "retrieval, highest head", "prefix matching, highest head"
_TOKENS = _L50, "zero of B(m), farthest head (tokens)"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ThroughTraining(Probe):
    """What the probes asked by default say of a run, and L50, at each of its checkpoints.

    Attributes:
      step_C: updates made, ascending.
      name_X: of the numbers, with their units.
      value_3CX: the numbers and the ends of their 95% intervals over documents, NaN where there is
        none.
    """

    title = "Through training"
    caption = """
    At every checkpoint that is kept, and before training. Above: what the model answers right, and
    the highest score of a head. Below: how far it finds what it needs (L50), beside where the
    farthest head's advantage ends: nothing is drawn where there is no end, or where nothing is
    learned. Bands are 95% intervals over documents; of several seeds the first."""

    step_C: np.ndarray
    name_X: np.ndarray
    value_3CX: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "ThroughTraining":
        """Puts the other probes' questions to every checkpoint, in turn."""
        runs = checkpoints(subject.run)
        found = [_numbers(dataclasses.replace(subject, run=run)) for run in runs]
        return cls(
            step_C=np.array([run.step for run in runs]),
            name_X=np.array(list(found[0])),
            value_3CX=np.array([list(numbers.values()) for numbers in found]).transpose(2, 0, 1),
        )

    def of(self, name: str) -> np.ndarray:
        """One number at each checkpoint, with its interval: `[3, C]`."""
        return self.value_3CX[:, :, self.name_X.tolist().index(name)]

    def half_way(self, name: str) -> float:
        """Updates after which a number was first half-way from where it began to where it is.

        What is not learned counts as 0. NaN where it ends no higher than it began.
        """
        value_C = np.nan_to_num(self.of(name)[0], nan=0, posinf=math.inf)
        first, last = value_C[[0, -1]]
        if not first < last:
            return math.nan
        return float(self.step_C[(value_C >= (first + last) / 2).argmax()])

    def numbers(self) -> dict[str, Number]:
        """When each of what is drawn was half-way."""
        return {
            f"{name.removesuffix(' (tokens)')}: half-way after (updates)": Number(
                self.half_way(name)
            )
            for name in (*_SHARES, *_TOKENS)
        }

    def lines(self) -> list[dict[str, str]]:
        """A line a checkpoint."""
        return [
            {"updates": str(step)}
            | {name: said([Number(*self.of(name)[:, at])]) for name in (*_SHARES, *_TOKENS)}
            for at, step in enumerate(self.step_C)
        ]

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["ThroughTraining"]]) -> Figure:
        """Of several seeds the first."""
        figure, axes = panels(list(found), rows=2, legend=False, sharex=True, sharey="row")
        names = *_SHARES, *_TOKENS
        colors = dict(zip(names, COLORS, strict=False))
        for (above, below), (first, *_) in zip(axes, found.values(), strict=True):
            for name in names:
                ax = above if name in _SHARES else below
                value_C, low_C, high_C = np.where(
                    np.isfinite(first.of(name)), first.of(name), np.nan
                )
                ax.plot(first.step_C, value_C, ".-", color=colors[name], lw=1.4)
                ax.fill_between(first.step_C, low_C, high_C, color=colors[name], alpha=0.2, lw=0)
            above.set_ylim(-0.03, 1.03)
            below.set_yscale("log", base=2)
            token_axis(below.yaxis, num_ticks=8)
        for above, below in first_column(axes):
            above.set_ylabel("share")
            below.set_ylabel("tokens (log scale)")
        figure.supxlabel("updates", fontsize=10)
        figure.legend(
            handles=[handle(name, color=color, lw=1.8) for name, color in colors.items()],
            loc="outside upper center",
            ncols=3,
        )
        return figure


def checkpoints(run: LoadedRun) -> list[LoadedRun]:
    """The run at each step that is kept, up to its own, and as it was before."""
    runs = [load(run.directory.path, step) for step in run.directory.steps() if step < run.step]
    first = [] if run.directory.config.start_from else [untrained(run)]
    return [*first, *runs, run]


def _numbers(subject: Subject) -> dict[str, Number]:
    """What the probes asked by default say, and L50."""
    found = {}
    for probe in all_probes().values():
        if probe.by_default:
            found |= probe.look(subject).numbers()
    return found | {_L50: Number(*subject.l50)}
