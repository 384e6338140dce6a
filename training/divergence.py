"""Divergence: members whose loss or gradient is no longer finite, so that every update is skipped.

On the devices, the state is frozen after `train.max_skipped` skipped updates in a row
(`training.step`). The host detects this when it fetches the scalars for logging.
"""

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from experiment.checkpoint import last_good
from experiment.run import RunDirectory


class DivergedError(ValueError):
    """All members diverged; the message names the step and the last good checkpoint."""


class Divergence:
    """The members of a run that have diverged."""

    def __init__(
        self, runs: Sequence[RunDirectory], max_skipped: int, num_steps: int, console: Console
    ):
        """Count members as diverged after `max_skipped` skipped updates, or a skipped last one."""
        self._runs, self._console = runs, console
        self._max_skipped, self._num_steps = max_skipped, num_steps
        self.num_members = len(runs)
        self._since: dict[int, int] = {}  # first update skipped, by a member's index

    def update(self, step: int, skipped_M: np.ndarray) -> None:
        """Record the updates that each member has skipped in a row at `step`; print what is new."""
        for index, count in enumerate(skipped_M.tolist()):
            over = count >= self._max_skipped or (count and step == self._num_steps)
            if over and index not in self._since:
                self._since[index] = step - count + 1
                if self.num_members > 1:
                    self._console.print(
                        f"{self._describe(index)} (frozen; the other members continue)",
                        soft_wrap=True,
                    )

    @property
    def everywhere(self) -> bool:
        """True if all members have diverged."""
        return len(self._since) == self.num_members

    def __str__(self):
        """Return the summary at the end of training; empty if no member diverged."""
        if self.num_members == 1 or not self._since:
            return "".join(map(self._describe, self._since))
        since = (f"{self._runs[index].name} at step {step}" for index, step in self._since.items())
        return f"{len(self._since)} of {self.num_members} members diverged: {', '.join(since)}"

    def _describe(self, index: int) -> str:
        run, step = self._runs[index], self._since[index]
        good = last_good(run.steps(), step)
        advice = "no checkpoint is older; start again in another --workdir"
        if good is not None:
            advice = f"its last good checkpoint is step {good}: start_from={run.path}@{good}"
        return (
            f"{run.path} diverged at step {step}: loss or gradient is not finite from there on "
            f"and every update is skipped; {advice}, with a lower train.learning_rate"
        )
