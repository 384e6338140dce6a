"""Card: one question, who is trained to answer it, what is measured, and what would refute what.

A card is data: `sweep.py` trains one by its name, `python -m studies run` trains it in doublings of
tokens and measures after each, and the study's report marks its claims.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, Protocol

from experiment import overrides
from experiment.config import ExperimentConfig
from settings.checks import Bounds, Count, check

_Number = Annotated[int, Bounds(at_least=0)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One model of a card.

    Attributes:
      name: within the card, and in file names.
      overrides: of the card's config, as on a command line.
    """

    name: str
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One way to measure a model.

    Attributes:
      name: within the card.
      tasks: what is asked, as expressions; none: what the config's `evals` names.
      lengths: context lengths, tokens; none: the config's, or the trained one.
      masked_heads: (layer, query head), from 0, of heads that contribute nothing.
    """

    name: str = "whole"
    tasks: tuple[str, ...] = ()
    lengths: tuple[Count, ...] = ()
    masked_heads: tuple[tuple[_Number, _Number], ...] = ()

    def __post_init__(self):
        check(self)


class Measured(NamedTuple):
    """What one run came to by one measurement, after its last doubling: what claims read.

    Attributes:
      seed: of the run.
      tokens: it was trained on.
      converged: whether the last doubling moved nothing, by the study's rule.
      ceiling: accuracy at short distances.
      l50: tokens; inf: beyond all distances asked, nan: not learned.
      worst: accuracy of the worst bin of distances.
      mean_accuracy: over all distances asked.
      longest: distance asked, tokens.
    """

    seed: int
    tokens: int
    converged: bool
    ceiling: float
    l50: float
    worst: float
    mean_accuracy: float
    longest: int


class Results(Protocol):
    """What is known of a card's runs."""

    def of(self, member: str, measurement: str = "whole", task: str = "kv") -> list[Measured]:
        """One for each seed that was run, in order; by a task's name, whatever its parameters."""
        ...

    def forecast(self, member: str) -> float:
        """L50 as `theory.capability` forecast it, tokens; inf: beyond all distances asked."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """What a card holds to be so, and how a machine tells that it is not.

    Attributes:
      text: one sentence.
      refuted: from a card's results to whether they refute it; None: they do not say.
    """

    text: str
    refuted: Callable[[Results], bool | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """One experiment of a study.

    Attributes:
      name: among all cards and configs; also what `sweep.py` calls it.
      question: one line.
      shared: what its members have in common. Its own name, question and members are not looked at.
      members: at least one.
      tokens: a first budget for each member, trained in doublings that end at it, before it where
        nothing moves any more and at twice of it where much does; its learning rate is then "wsd".
        None: the config's own steps, trained once.
      measurements: of each member.
      claims: what the report marks.
      refuted_if: what would refute the card, in words.
      source: who found what, and where; may have several paragraphs.
    """

    name: str
    question: str
    shared: ExperimentConfig
    members: tuple[Member, ...]
    tokens: Count | None = None
    measurements: tuple[Measurement, ...] = (Measurement(),)
    claims: tuple[Claim, ...] = ()
    refuted_if: str = ""
    source: str = ""

    def __post_init__(self):
        check(self)
        for kind, named in (("members", self.members), ("measurements", self.measurements)):
            if not named:
                raise ValueError(f"card {self.name} needs {kind}")
            for one, other in itertools.combinations(named, 2):
                if one.name == other.name:
                    raise ValueError(f"card {self.name}: two {kind} are called {one.name}")
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

    @property
    def config(self) -> ExperimentConfig:
        """The card as `sweep.py` is given it (one of a single member: `train.py`)."""
        if len(self.members) == 1:
            return self.configs()[self.members[0].name]
        members = tuple(member.overrides for member in self.members)
        return dataclasses.replace(self._common, members=members)

    def configs(self) -> dict[str, ExperimentConfig]:
        """Each member's config by its name; its steps are those of `tokens`, if there is a budget.

        Raises:
          ValueError: naming the member, if an override is wrong.
        """
        found = {}
        for member in self.members:
            try:
                found[member.name] = overrides.apply(self._common, member.overrides)
            except ValueError as error:
                raise ValueError(f"card {self.name}, member {member.name}: {error}") from error
        return found

    @property
    def _common(self) -> ExperimentConfig:
        train, data = self.shared.train, self.shared.data
        if self.tokens is not None:
            num_steps = math.ceil(self.tokens / (data.batch_size * data.context_length))
            train = dataclasses.replace(train, num_steps=num_steps)
        return dataclasses.replace(
            self.shared, name=self.name, question=self.question, members=(), train=train
        )
