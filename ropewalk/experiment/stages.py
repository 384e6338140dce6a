"""A run in stages: each is the stage before it with some fields changed.

    the config      stage 0, from fresh parameters or those of `start_from`
    stages[0]       stage 1: stage 0 with these overrides
    stages[1]       stage 2: stage 1 with these overrides, and so on

A stage is trained as if it were a run of its own that starts from the parameters of the stage
before: with its own steps, learning rate schedule and warmup, and with AdamW's moments at zero.
Papers extend contexts so, from released weights, which have no moments (Men et al.,
arXiv 2405.14591, Section 5.1; YaRN, arXiv 2309.00071, Section 4.1). Step numbers continue.
Rows continue from stage to stage while the data config is the same; a changed one starts at row 0.
A sweep's member is the config with the member's overrides, and the stages are applied on top.
"""

import dataclasses
from typing import Any, NamedTuple

from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import ExperimentConfig, to_dict
from ropewalk.experiment.dotted import apply
from ropewalk.model import rotary as rotary_lib


class Stage(NamedTuple):
    """One stage of a run.

    Attributes:
      number: from 0.
      start, end: number of updates of the run before the stage and at its end.
      rows_from: number of updates before the first stage that reads the same stream of rows.
      tokens_before: tokens of the run before the stage.
      config: config of the stage, as of a run without stages.
    """

    number: int
    start: int
    end: int
    rows_from: int
    tokens_before: int
    config: ExperimentConfig

    @property
    def tokens_per_step(self) -> int:
        """Tokens of an update."""
        return self.config.data.batch_size * self.config.data.context_length

    @property
    def tokens(self) -> int:
        """Tokens of all updates of the stage."""
        return (self.end - self.start) * self.tokens_per_step


def split(config: ExperimentConfig) -> tuple[Stage, ...]:
    """Return the stages of a run, the first one included.

    Raises:
      ValueError: naming the stage and the override that is wrong, or that belongs to the whole run.
    """
    stages: list[Stage] = []
    current = dataclasses.replace(config, stages=())
    start = rows_from = tokens = 0
    for number, overrides in enumerate([(), *config.stages]):
        before = current
        try:
            if code := next((o for o in overrides if ".py:" in o), ""):  # readers would execute it
                raise ValueError(f"{code}: a stage takes nothing from a file of your own")
            current = apply(current, overrides)
            for name in (override.partition("=")[0] for override in overrides):
                if name.partition(".")[0] not in _OF_STAGES or name in _OF_THE_RUN:
                    raise ValueError(f"{name} is the whole run's; set it in the config itself")
        except ValueError as error:
            raise ValueError(f"stage {number}: {error}") from error
        if row_fields(current.data) != row_fields(before.data):
            rows_from = start
        end = start + current.train.num_steps
        stages.append(Stage(number, start, end, rows_from, tokens, current))
        tokens += stages[-1].tokens
        start = end
    return tuple(stages)


def count_tokens(config: ExperimentConfig) -> int:
    """Return the number of tokens that a run trains on, in all stages."""
    last = split(config)[-1]
    return last.tokens_before + last.tokens


# Parts of a config that a stage may change, and their fields that all stages share.
_OF_STAGES = ("model", "data", "train", "evals")
_OF_THE_RUN = (
    "train.keep",
    "train.keep_best",
    "train.max_skipped",
    "train.tracking",
    "train.eval_tasks",
)


def row_fields(data: DataConfig) -> DataConfig:
    """Return the fields that decide a stream of rows: all but how it is kept and made."""
    return dataclasses.replace(data, prepared_root=".", num_workers=0, on_bad_document="error")


def stage_at(config: ExperimentConfig, step: int) -> Stage:
    """Return the stage of update number `step` (from 1); step 0 belongs to the first stage, and
    steps past the end to the last one."""
    stages = split(config)
    return next((stage for stage in stages if step <= stage.end), stages[-1])


def positions(config: ExperimentConfig, step: int) -> list[dict[str, Any]]:
    """Return the positions of the first `step` updates: a JSON object per stage, oldest first."""
    return [
        {
            "num_steps": min(step, stage.end) - stage.start,
            "context_length": stage.config.data.context_length,
            "rotary": rotary_lib.expression(stage.config.model.rotary),
            "window": to_dict(stage.config.model.window),
        }
        for stage in split(config)[: stage_at(config, step).number + 1]
    ]
