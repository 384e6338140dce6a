"""What is shown of each member: its measurements, and the theory of its own frequencies."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

import evals
from evals import rows as rows_lib
from evals.estimate.effective_context import NOT_LEARNED, Estimate
from experiment import stages
from experiment.config import TRAINED, ExperimentConfig
from experiment.identity import copy_notice, find_copies
from experiment.items import metrics_damage
from experiment.run import RunDirectory
from model.rotary.rope import Rope
from reporting.forecasts import forecast
from reporting.labels import labels, setting
from reporting.looks import Look, looks
from reporting.measurements import Measurement, before_divergence, measurements
from theory import bound
from theory.capability import Forecast
from theory.predictions import Predictions, predict

LOSS_POINTS = 150
LONGEST_STABLE = 2**13  # tokens: where a stable base takes seconds to prove


@functools.cache
def _stable_base(length: int, head_dim: int, rotary_fraction: float) -> float | None:
    try:
        return bound.stable_base(length, head_dim, rotary_fraction).high
    except ValueError:  # no base covers the length: a head of a single pair
        return None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One setting of a sweep; its seeds are its runs. Each stage evaluated is a member of its own.

    Attributes:
      index: place in the page's order, from 0: bases ascending, then controls.
      label: what tells it apart from the others (`reporting.labels`); with the step where several
        stages are here.
      look: colour and dashes.
      runs: one run directory a seed.
      seeds: of initialisation and rows, ascending; a result row's `seed` is the place among them.
      config: of the first run, in force in the stage.
      superseded: whether training has gone on to another stage.
      theory: of the configuration's own frequencies.
      measurements: all that was evaluated; "trained" is the first of the variants.
      losses: (tokens seen, training loss in nats/token) of each run that has metrics, at most
        `LOSS_POINTS` of them, each the mean of the records it stands for. All stages' are the
        last one's.
    """

    index: int
    label: str
    look: Look
    runs: tuple[RunDirectory, ...]
    seeds: tuple[tuple[int, int], ...]
    config: ExperimentConfig
    superseded: bool
    theory: Predictions
    measurements: tuple[Measurement, ...]
    losses: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def diverged(self) -> str:
        """Which of its runs did, in words; empty if none did."""
        since = [run.diverged_at for run in self.runs if run.diverged_at is not None]
        if len(since) < len(self.runs):
            return f"{len(since)} of {len(self.runs)} seeds diverged" if since else ""
        return f"diverged at step {min(since):,}"

    @property
    def base(self) -> float | None:
        """The base of its variant; None for a control, which has none, a window or a hole."""
        model = self.config.model
        return None if model.window or model.blind else getattr(model.rotary, "base", None)

    @functools.cached_property
    def stable_base(self) -> float | None:
        """The base from which on every base covers the trained length; None if nobody can say.

        Said of plain RoPE, and where it takes seconds to prove.
        """
        model, rotary = self.config.model, self.config.model.rotary
        if not isinstance(rotary, Rope) or self.trained_length > LONGEST_STABLE:
            return None
        share = rotary.rotary_dim(model.rope_head_dim) / model.head_dim
        return _stable_base(self.trained_length, model.head_dim, share)

    @property
    def trained_length(self) -> int:
        """Tokens of a training row."""
        return self.config.data.context_length

    @functools.cached_property
    def own(self) -> dict[tuple[str, int], Measurement]:
        """Under the variant it was trained with, by task and length (ascending)."""
        return {(m.task, m.length): m for m in self.measurements if m.variant == TRAINED}

    def of_task(self, task: str) -> list[Measurement]:
        """Those of `own`, by length (ascending)."""
        return [measured for (name, _), measured in self.own.items() if name == task]

    def nearest(self, task: str) -> Measurement | None:
        """Under its own variant, at the trained length or the evaluated one nearest to it."""
        found = self.of_task(task)
        return min(found, key=lambda m: abs(m.length - self.trained_length), default=None)

    @functools.cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Effective context by task, of `nearest`."""
        nearest = (self.nearest(task) for task, _ in self.own)
        return {each.task: each.estimate for each in nearest if each and each.kind == "retrieval"}

    @functools.cached_property
    def forecasts(self) -> dict[str, Forecast | None]:
        """What its heads could see, by task of `estimates`; None: nothing is forecast of it."""
        model, data = self.config.model, self.config.data
        found: dict[str, Forecast | None] = {}
        for task, estimate in self.estimates.items():
            others = evals.parse(task).num_others(data, estimate.length)
            found[task] = None
            if others is not None:
                found[task] = forecast(
                    model, data.context_length, num_others=others, longest=estimate.longest
                )
        return found


def read(
    runs: Sequence[RunDirectory], notice: Callable[[str], None] = lambda line: None
) -> list[Member]:
    """Groups runs that differ in seed or machine only, and reads what was measured.

    Args:
      runs: run directories; copies of one run are one, which has the rows of all of them.
      notice: called with a line for each copy, and for each metrics.jsonl that lost rows.

    Raises:
      ValueError: if result rows are damaged, or those of another run.
    """
    # Once, however many of the paths lead to it.
    runs = list({run.path.resolve(): run for run in runs}.values())
    rows = {run: rows_lib.read_run(run) for run in runs}
    copies = find_copies(runs, lambda run: rows_lib.ids(rows[run]))
    for copy, original in copies.items():
        notice(copy_notice(original, copy))
        rows[original] = rows_lib.replace(rows[copy], rows[original])
    groups: dict[tuple, dict[RunDirectory, rows_lib.Rows]] = {}
    for run in (run for run in runs if run not in copies):
        groups.setdefault(tuple(setting(run.config).items()), {})[run] = rows[run]
        if damage := metrics_damage(run):
            notice(damage)
    for group in groups.values():
        if len(set(map(_seeds, group))) < len(group):
            paths = " and ".join(str(run.path) for run in group)
            notice(f"{paths}: some have equal seeds, and their answers count as those of one seed")
    members = [member for group in groups.values() for member in _members(group)]
    members.sort(key=_order)
    names = labels([member.config for member in members])
    styles = looks([member.base for member in members])
    return [
        dataclasses.replace(member, index=index, label=_label(name, member), look=look)
        for index, (member, name, look) in enumerate(zip(members, names, styles, strict=True))
    ]


def _label(name: str, member: Member) -> str:
    return name + member.label + (f" ({member.diverged})" if member.diverged else "")


def _order(member: Member) -> tuple:
    config = member.config.model
    base = member.base is None, member.base or 0, config.window is not None
    return *base, member.trained_length


def _members(rows_of: Mapping[RunDirectory, rows_lib.Rows]) -> Iterator[Member]:
    """The last stage that was trained, and the others that were evaluated."""
    runs = tuple(rows_of)
    first, seeds = runs[0], tuple(sorted(set(map(_seeds, runs))))
    rows = rows_lib.concatenate([_rows(run, rows, seeds) for run, rows in rows_of.items()])
    evaluated = np.unique(rows["step"]).tolist()
    stage_of = {step: stages.at(first.config, step).number for step in evaluated}
    newest = max([*first.steps(), *evaluated], default=0)  # rows may lie apart from checkpoints
    last = stages.at(first.config, newest).number
    numbers = sorted({*stage_of.values(), last})
    for number in numbers:
        steps = [step for step, stage in stage_of.items() if stage == number] or [newest]
        config = first.config_at(max(steps))
        of_stage = np.isin(rows["step"], steps)
        own = {name: column[of_stage] for name, column in rows.items()}
        yield Member(
            index=0,
            label=f"@{max(steps)}" if len(numbers) > 1 else "",
            look=looks([None])[0],  # until it stands among the others
            runs=runs,
            seeds=seeds,
            config=config,
            superseded=number != last,
            theory=predict(config.model.rotary_table(config.data.context_length).inv_freq),
            measurements=tuple(sorted(measurements(own, config), key=_shown_first)),
            losses=tuple(filter(None, map(_loss, runs))) if number == last else (),
        )


def _seeds(run: RunDirectory) -> tuple[int, int]:
    return run.config.seed, run.config.data.seed


def _rows(
    run: RunDirectory, rows: rows_lib.Rows, seeds: Sequence[tuple[int, int]]
) -> rows_lib.Rows:
    """Its result rows. A row knows the seed of the initialisation only, and runs may share that."""
    rows = before_divergence(run, rows)
    for name in np.unique(rows["task"]).tolist():
        try:
            evals.parse(name)
        except ValueError as error:
            raise ValueError(f"{run.results_path}: {error}") from error
    return rows | {"seed": np.full_like(rows["seed"], seeds.index(_seeds(run)))}


def _shown_first(measured: Measurement) -> tuple:
    return measured.variant != TRAINED, *_task_order(measured.task)


def _loss(run: RunDirectory) -> tuple[np.ndarray, np.ndarray] | None:
    records = [record for record in run.read_metrics() if record["loss"] is not None]
    if not records:
        return None
    values = np.array([(record["tokens"], record["loss"]) for record in records], float)
    blocks = np.array_split(values, min(len(values), LOSS_POINTS))
    tokens, loss = np.array([block.mean(0) for block in blocks]).T
    return tokens, loss


def intervals_over(members: Sequence[Member]) -> str:
    """What the 95% intervals of effective context are over; seeds need two."""
    counts = {each.num_seeds for member in members for each in member.estimates.values()}
    if max(counts, default=1) == 1:
        return "documents (one seed)"
    one = ", of documents alone where there is one seed" if 1 in counts else ""
    return f"seeds and documents{one}"


def task_order(names: Iterable[str]) -> list[str]:
    """Tasks in the page's order: as they say themselves, then by name."""
    return sorted(set(names), key=_task_order)


def _task_order(name: str) -> tuple:
    return evals.parse(name).order, name


def at_several_lengths(members: Sequence[Member]) -> list[str]:
    """Tasks that a member was asked at several lengths, under its own variant."""
    return task_order(
        task for member in members for task, _ in member.own if len(member.of_task(task)) > 1
    )


def tasks(members: Sequence[Member], *kinds: str) -> list[str]:
    """Every task of these kinds (retrieval) that was evaluated, the leading one first."""
    own = [measured for member in members for measured in member.own.values()]
    return task_order(each.task for each in own if each.kind in (kinds or ("retrieval",)))


def learned(members: Sequence[Member], task: str) -> bool:
    """Whether any member did."""
    found = (member.estimates.get(task) for member in members)
    return any(estimate and estimate.verdict != NOT_LEARNED for estimate in found)
