"""Cards: a question, the models that answer it, their measurements, and claims that can fail.

A card is data. `python -m studies run` trains its members with doubled budgets of tokens and
measures after each budget; the study's report marks its forecasts and claims.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

from experiment import overrides
from experiment.config import ExperimentConfig
from utils.checks import Bounds, Count, check

_Number = Annotated[int, Bounds(at_least=0)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One model of a card.

    Attributes:
      name: unique within the card; part of file names.
      overrides: changes to the card's config, as on a command line.
    """

    name: str
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One way to measure a model.

    Attributes:
      name: unique within the card; recorded in rows and forecasts.
      tasks: expressions of tasks; empty: those of the config's `evals`.
      lengths: context lengths, tokens; empty: the config's, or the trained one.
      masked_heads: (layer, query head), from 0, of heads without output.
    """

    name: str = "whole"
    tasks: tuple[str, ...] = ()
    lengths: tuple[Count, ...] = ()
    masked_heads: tuple[tuple[_Number, _Number], ...] = ()

    def __post_init__(self):
        check(self)


class SeedResult(NamedTuple):
    """Result of one run by one measurement, after its last budget.

    Attributes:
      seed: seed of the run.
      tokens: tokens trained on.
      ceiling: accuracy at short distances.
      l50: tokens; inf: beyond all distances measured, nan: not learned.
      worst: accuracy of the worst bin of distances.
      mean_accuracy: over all distances.
      longest: longest distance measured, tokens.
      forecast: D_H's bound on L50 by the card's first measurement, tokens; inf: beyond all
        distances measured, nan: none.
    """

    seed: int
    tokens: int
    ceiling: float
    l50: float
    worst: float
    mean_accuracy: float
    longest: int
    forecast: float = math.nan


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement about some members that their results can refute.

    Attributes:
      text: one sentence.
      members: names.
      is_refuted_by: takes the seeds' results (lists of `SeedResult`) of each member by each
        measurement, in this order, and returns whether they refute the claim.
      measurements: names, of each member.
      task: name of the task, without parameters.
    """

    text: str
    members: tuple[str, ...]
    is_refuted_by: Callable[..., bool]
    measurements: tuple[str, ...] = ("whole",)
    task: str = "kv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """One experiment of a study.

    Attributes:
      name: unique in the study.
      question: one line.
      shared: config that all members share, without name, question and members.
      members: at least one.
      tokens: budget of each member, which trains and is measured at each share of it, ascending, or
        until a doubling changes little; `train.schedule` must be "wsd". None: train once, with the
        config's own steps.
      shares: of the budget; the minimal head forecasts those of a quarter and of 1.
      measurements: measurements of each member.
      claims: statements that the report marks.
      refuted_if: a result that would refute the card, in words.
      is_blind: whether the minimal head's forecasts were committed before any row.
    """

    name: str
    question: str
    shared: ExperimentConfig
    members: tuple[Member, ...]
    tokens: Count | None = None
    shares: tuple[float, ...] = (1 / 8, 1 / 4, 1 / 2, 1, 2)
    measurements: tuple[Measurement, ...] = (Measurement(),)
    claims: tuple[Claim, ...] = ()
    refuted_if: str = ""
    is_blind: bool = False

    def __post_init__(self):
        check(self)
        for kind, items in (("members", self.members), ("measurements", self.measurements)):
            if not items:
                raise ValueError(f"card {self.name} needs {kind}")
            for first, second in itertools.combinations(items, 2):
                if first.name == second.name:
                    raise ValueError(f"card {self.name}: two {kind} are called {first.name}")
        for name in (self.name, *(member.name for member in self.members)):
            if not name or re.search(r"[\s/*?\[\]]", name):
                raise ValueError(
                    f"card {self.name}: {name!r} names files; leave out spaces and / * ? [ ]"
                )
        if self.tokens is not None and self.shared.stages:
            raise ValueError(f"card {self.name}: doublings of tokens and stages exclude each other")
        if self.tokens is not None and self.shared.train.schedule != "wsd":
            raise ValueError(
                f"card {self.name}: doublings of tokens need train.schedule=wsd, not "
                f"{self.shared.train.schedule}"
            )

    def configs(self) -> dict[str, ExperimentConfig]:
        """Return each member's config by its name; its steps are those of `tokens`, if set.

        Raises:
          ValueError: naming the member, if an override is wrong.
        """
        train, data = self.shared.train, self.shared.data
        if self.tokens is not None:
            num_steps = math.ceil(self.tokens / (data.batch_size * data.context_length))
            train = dataclasses.replace(train, num_steps=num_steps)
        shared = dataclasses.replace(
            self.shared, name=self.name, question=self.question, members=(), train=train
        )
        configs = {}
        for member in self.members:
            try:
                configs[member.name] = overrides.apply(shared, member.overrides)
            except ValueError as error:
                raise ValueError(f"card {self.name}, member {member.name}: {error}") from error
        return configs
