"""Validation losses of a member so far: early stop, and the best checkpoint.

A checkpoint holds them, so a resumed run stops at the same update.
"""

import dataclasses
import math

from ropewalk.experiment.items import read_items
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import Stage
from ropewalk.utils.checks import check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Validation losses of one member, on which `train.stop_after` and `train.keep_best` depend.

    Attributes:
      best_loss: lowest validation loss of the stage, nats per target; None: none yet.
      num_worse: validation losses since then.
      best_steps: step of the lowest loss of each stage that has one.
      stops: steps at which stages were stopped early.
    """

    best_loss: float | None = None
    num_worse: int = 0
    best_steps: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()

    def __post_init__(self):
        check(self)

    def in_new_stage(self) -> "Progress":
        """Return the progress at the start of a stage, whose losses are of other rows perhaps."""
        return dataclasses.replace(self, best_loss=None, num_worse=0)

    def after(self, stage: Stage, step: int, loss: float) -> "Progress":
        """Return the progress after the validation at a step; a loss of NaN does not count."""
        if not math.isfinite(loss):
            return self
        if self.best_loss is None or loss < self.best_loss:
            earlier = self.best_steps if self.best_loss is None else self.best_steps[:-1]
            return dataclasses.replace(
                self, best_loss=loss, num_worse=0, best_steps=(*earlier, step)
            )
        worse, limit = self.num_worse + 1, stage.config.train.stop_after
        stops = (step,) if worse == limit and step < stage.end else ()
        return dataclasses.replace(self, num_worse=worse, stops=(*self.stops, *stops))


def read_progress(run: RunDirectory, step: int) -> Progress:
    """Return the progress of a run at a checkpoint; step 0 is the start."""
    return Progress(**read_items(run, step)[0]["data"].get("validation", {}) if step else {})
