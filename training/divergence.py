"""Runs that train no more: loss or gradient is not finite, and every update is skipped.

On the devices the state holds still from the `train.max_skipped`-th skipped update in a row on
(`training.step`). Here it is noticed, when scalars are fetched anyway, and said.
"""

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from experiment.checkpoint import last_good
from experiment.run import RunDirectory


class DivergedError(ValueError):
    """No member trains any more: one line that says since when, and what was good before."""


class Divergence:
    """Which members of a run train no more."""

    def __init__(
        self, runs: Sequence[RunDirectory], max_skipped: int, num_steps: int, console: Console
    ):
        """Of members that are frozen after `max_skipped` updates, or end on a skipped one."""
        self._runs, self._console = runs, console
        self._max_skipped, self._num_steps = max_skipped, num_steps
        self.num_members = len(runs)
        self._since: dict[int, int] = {}  # first update skipped, by a member's index

    def look(self, step: int, skipped_M: np.ndarray) -> None:
        """Takes what members have skipped in a row after `step` updates, and says what is new."""
        for index, count in enumerate(skipped_M.tolist()):
            over = count >= self._max_skipped or (count and step == self._num_steps)
            if over and index not in self._since:
                self._since[index] = step - count + 1
                if self.num_members > 1:
                    self._console.print(
                        f"{self._said(index)} (frozen; what trains beside it goes on)",
                        highlight=False,
                        soft_wrap=True,
                    )

    @property
    def everywhere(self) -> bool:
        """Whether no member trains any more."""
        return len(self._since) == self.num_members

    def __str__(self):
        """What there is to say at the end; empty if no member diverged."""
        if self.num_members == 1 or not self._since:
            return "".join(map(self._said, self._since))
        since = (f"{self._runs[index].name} at step {step}" for index, step in self._since.items())
        return f"{len(self._since)} of {self.num_members} members diverged: {', '.join(since)}"

    def _said(self, index: int) -> str:
        run, step = self._runs[index], self._since[index]
        good = last_good(run.steps(), step)
        advice = "no checkpoint is older; begin again in another --workdir"
        if good is not None:
            advice = f"its last good checkpoint is step {good}: start_from={run.path}@{good}"
        return (
            f"{run.path} diverged at step {step}: from there on loss or gradient is not "
            f"finite and no update is made; {advice}, with a lower train.learning_rate"
        )
