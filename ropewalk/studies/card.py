"""Cards: a question, the models that answer it, their measurements, and claims that can fail.

A card is data: a .toml file of the study (`read`). `ropewalk studies run` trains and measures its
members; `report` compares each claim with the rows. A claim names a range, and a measure that
computes a number with its 95% interval. It is held if the interval lies within the range, refuted
if it lies outside, and else undecided. A claim that is held supports no theory if a rival forecasts
the range too.
"""

import dataclasses
import functools
import inspect
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.evals.estimate.statistics import t_half_width
from ropewalk.experiment import overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.utils.checks import Bounds, Count, check, problem
from ropewalk.utils.messages import nearest, quoted, rounded

_Number = Annotated[int, Bounds(at_least=0)]
_P = ParamSpec("_P")
_T = TypeVar("_T")

HELD, REFUTED, UNDECIDED, NOT_MEASURED = "held", "refuted", "undecided", "not measured"
NOTHING = "nothing to measure"
NO_SUPPORT = "held, by rivals too"


class Value(NamedTuple):
    """A number that rows decide.

    Attributes:
      value: the estimate; NaN if the models have not learned what is measured, or if rows do not
        decide it.
      low, high: ends of its 95% interval; -inf or inf where it is open, both if not learned.
      n: number of independent units that the interval is over; 0: there is nothing to measure.
      unit: plural name of these units.
    """

    value: float
    low: float
    high: float
    n: int
    unit: str = "seeds"

    @classmethod
    def over(cls, values: Sequence[float] | np.ndarray, unit: str = "seeds") -> "Value":
        """Return the mean of independent values, of one or more, with Student's interval."""
        half = t_half_width(np.asarray(values)) if len(values) > 1 else math.inf
        mean = float(np.mean(values))
        return cls(mean, mean - half, mean + half, len(values), unit)

    def __str__(self) -> str:
        if math.isnan(self.value):
            is_open = math.isinf(self.low) and math.isinf(self.high)
            return "not learned" if is_open else "undetermined"
        return f"{rounded(self.value)} [{rounded(self.low)}, {rounded(self.high)}]"

    def mark(self, at_least: float, at_most: float) -> str:
        """Return the mark of the claim that the number is in a range."""
        if not self.n:
            return NOTHING
        if math.isnan(self.value) or math.isnan(self.low + self.high):
            return UNDECIDED
        if at_least <= self.low and self.high <= at_most:
            return HELD
        return REFUTED if self.high < at_least or self.low > at_most else UNDECIDED


# Takes the card and all rows of the study (`studies.rows.Row`); None if rows are missing.
Measure = Callable[["Card", Sequence[Any]], Value | None]


def as_measure(
    number: Callable[Concatenate["Card", Sequence[Any], _P], Value | None],
) -> Callable[_P, Measure]:
    """Return the function that makes measures of `number`, from its arguments after the rows."""

    @functools.wraps(number)
    def make(*args: _P.args, **options: _P.kwargs) -> Measure:
        return lambda card, rows: number(card, rows, *args, **options)

    return make


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement that rows can refute: a number lies in a range.

    Attributes:
      text: one sentence.
      measure: returns the number.
      at_least, at_most: the range; at least one of them is given.
      rivals: what other theories forecast of the number. If one forecasts the range too, a claim
        that is held supports neither.
    """

    text: str
    measure: Measure
    at_least: float = -math.inf
    at_most: float = math.inf
    rivals: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        is_open = math.isinf(self.at_least) and math.isinf(self.at_most)
        if is_open or not self.at_least < self.at_most:
            raise ValueError(f"claim {self.text!r} needs at_least, at_most, or an ascending range")

    def mark(self, value: Value) -> str:
        """Return the mark of the claim for its number."""
        mark = value.mark(self.at_least, self.at_most)
        is_shared = any(self.at_least <= x <= self.at_most for x in self.rivals.values())
        return NO_SUPPORT if mark == HELD and is_shared else mark

    @property
    def text_of_range(self) -> str:
        """Range as text."""
        if math.isinf(self.at_least):
            return f"at most {self.at_most:.3g}"
        if math.isinf(self.at_most):
            return f"at least {self.at_least:.3g}"
        return f"{self.at_least:.3g} to {self.at_most:.3g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One way to measure a model.

    Attributes:
      name: unique within the card; recorded in rows and forecasts.
      tasks: expressions of tasks; empty: those of the config's `evals`.
      lengths: context lengths, tokens; empty: the config's, or the trained one.
      masked_heads: (layer, query head), from 0, of heads without output.
      step: checkpoint; None: the last one.
    """

    name: str = "whole"
    tasks: tuple[str, ...] = ()
    lengths: tuple[Count, ...] = ()
    masked_heads: tuple[tuple[_Number, _Number], ...] = ()
    step: Count | None = None

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Card:
    """One experiment of a study.

    Attributes:
      name: unique in the study.
      question: one line.
      config: config that all members share, or the name of one in `configs/`; its own name,
        question and members do not count. None: a card about the rows of other cards.
      overrides: changes to this config, as on a command line.
      members: changes to the config that make each model, as on a command line, by the model's
        name, which is part of the names of runs.
      tokens: budget of each member; None: the config's own steps.
      shares: of the budget, ascending. Each share is a run of its own, from scratch.
      seeds: default of `run`; a seed decides the initialization and the order of the data.
      measurements: measurements of each run.
      claims: statements that the report marks.
      refuted_if: a result that would refute the card, in words.
    """

    name: str
    question: str
    config: ExperimentConfig | str | None = None
    overrides: tuple[str, ...] = ()
    members: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    tokens: Count | None = None
    shares: tuple[float, ...] = (1 / 8, 1 / 4, 1 / 2, 1, 2)
    seeds: tuple[_Number, ...] = (0, 1, 2)
    measurements: tuple[Measurement, ...] = (Measurement(),)
    claims: tuple[Claim, ...] = ()
    refuted_if: str = ""

    def __post_init__(self):
        check(self)
        if self.config is not None and not (self.members and self.measurements):
            raise ValueError(f"card {self.name} needs members and measurements")
        if len({item.name for item in self.measurements}) < len(self.measurements):
            raise ValueError(f"card {self.name}: two measurements have one name")
        for name, changes in self.members.items():
            changes = tuple(changes) if isinstance(changes, list) else changes  # of a file
            if wrong := problem(changes, tuple[str, ...]):
                raise ValueError(f"member {name} must be {wrong}")
        for name in (self.name, *self.members):
            if not name or re.search(r"[\s/*?\[\]]", name):
                raise ValueError(
                    f"card {self.name}: {name!r} names files; leave out spaces and / * ? [ ]"
                )

    def only(self, members: Sequence[str]) -> "Card":
        """Return the card with some of its members. Raises ValueError for an unknown name."""
        for name in members:
            if name not in self.members:
                text = f"card {self.name} has no member {name!r}; {nearest(name, self.members)}"
                raise ValueError(text)
        return dataclasses.replace(self, members={name: self.members[name] for name in members})

    def shared(self) -> ExperimentConfig:
        """Return the config that all members share; its steps are those of `tokens`, if set.

        Raises:
          ValueError: if there is no config of that name.
        """
        config = self.config
        if isinstance(config, str):
            config = find_config(config)
        assert config is not None  # a card without a config has no members
        config = overrides.apply(config, self.overrides)
        config = change(config, name=self.name, question=self.question, members=())
        if self.tokens is None:
            return config
        if config.stages:
            raise ValueError(f"card {self.name}: tokens and stages exclude each other")
        row_tokens = config.data.batch_size * config.data.context_length
        return change(config, train=dict(num_steps=math.ceil(self.tokens / row_tokens)))

    def configs(self) -> dict[str, ExperimentConfig]:
        """Return each member's config by its name, at the whole budget.

        Raises:
          ValueError: naming the member, if an override is wrong.
        """
        configs = {}
        for name, changes in self.members.items():
            try:
                configs[name] = overrides.apply(self.shared(), changes)
            except ValueError as error:
                raise ValueError(f"card {self.name}, member {name}: {error}") from error
        return configs

    def budgets(self, config: ExperimentConfig) -> list[ExperimentConfig]:
        """Return the config of a member at each share of its tokens, ascending.

        Raises:
          ValueError: if budgets do not ascend: the last one is the final row of a member.
        """
        if self.tokens is None:
            return [config]
        steps = [round(share * config.train.num_steps) for share in self.shares]
        if not steps or any(a >= b for a, b in itertools.pairwise([0, *steps])):
            raise ValueError(
                f"card {self.name}: shares={list(self.shares)} of tokens={self.tokens} are {steps} "
                "steps; list ascending shares that differ by a step or more"
            )
        return [change(config, train=dict(num_steps=number)) for number in steps]


def read(
    path: Path, configs: Mapping[str, ExperimentConfig], measures: Mapping[str, Callable[..., Any]]
) -> Card:
    """Read a card: the fields of `Card`; `members` is a table of overrides by name.

    The measure of a claim is a list: the name of a function that makes it, its arguments, and a
    table of keyword arguments. A list among the arguments is another measure.

    Args:
      path: a .toml file.
      configs: configs of the study by name, besides those of `configs/`.
      measures: functions that make measures, by name.

    Raises:
      ValueError: naming the file, if it is not a card.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        measurements = [_make(Measurement, part) for part in fields.pop("measurements", ())]
        claims = [
            _make(Claim, part | {"measure": _make_measure(part["measure"], measures)})
            for part in fields.pop("claims", ())
        ]
        config = fields.pop("config", None)
        parts = {
            "config": configs.get(config, config),
            "measurements": tuple(measurements) or (Measurement(),),
            "claims": tuple(claims),
        }
        return _make(Card, fields | parts)
    except KeyError as error:
        raise ValueError(f"{path}: a claim lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _make(cls: type[_T], fields: Mapping[str, Any]) -> _T:
    """Return an object of a dataclass; raise ValueError for unknown fields and missing ones."""
    what, known = cls.__name__.lower(), inspect.signature(cls).parameters
    for name in fields:
        if name not in known:
            raise ValueError(f"{what}: unknown field {quoted(name)}; {nearest(name, known)}")
    for name, parameter in known.items():
        if name not in fields and parameter.default is parameter.empty:
            raise ValueError(f"{what}: needs {name} = ...")
    return cls(**fields)


def _make_measure(text: Any, measures: Mapping[str, Callable[..., Any]]) -> Measure:
    if not isinstance(text, list) or not text or not isinstance(text[0], str):
        raise ValueError(f"measure must be a list that begins with a name, got {text!r}")
    name, *arguments = text
    if name not in measures:
        raise ValueError(f"unknown measure {name!r}; {nearest(name, measures)}")
    options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
    arguments = [_make_measure(a, measures) if isinstance(a, list) else a for a in arguments]
    return measures[name](*arguments, **options)
