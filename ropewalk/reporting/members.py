"""Members of a report: runs grouped over seeds, with their measurements and predictions."""

import dataclasses
import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ropewalk import evals
from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate.effective_context import Estimate
from ropewalk.experiment import stages
from ropewalk.experiment.config import TRAINED, ExperimentConfig
from ropewalk.experiment.items import check_newest_config, metrics_damage
from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting.labels import as_words, labels, setting, sweep_of
from ropewalk.reporting.measurements import Measurement, drop_diverged, measurements
from ropewalk.reporting.predictions import Predictions, of_model
from ropewalk.reporting.task_view import view_of
from ropewalk.utils.figures import Stroke, stroke_of

LOSS_POINTS = 150


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One setting of a sweep, with one run per seed. Each evaluated stage is a separate member.

    Attributes:
      index: position on the page, from 0: ascending bases, then those without a base.
      label: label unique on the page (`reporting.labels`), with the step if several stages of the
        setting are shown.
      step: step of the stage that is shown, if several stages of the setting are; else None.
      runs: one run directory per seed.
      seeds: ascending seeds of initialization and rows; a result row's `seed` is an index of it.
      config: configuration of the first run in this stage.
      superseded: whether training has continued with another stage.
      theory: predictions for the configured frequencies; see `predictions.of_model`.
      measurements: all measurements, those under the variant of training first.
      losses: (training tokens, training loss in nats/token) of each run with metrics, averaged to
        at most `LOSS_POINTS` points. The last stage has the losses of all stages.
    """

    index: int
    label: str
    step: int | None
    runs: tuple[RunDirectory, ...]
    seeds: tuple[tuple[int, int], ...]
    config: ExperimentConfig
    superseded: bool
    theory: Predictions | None
    measurements: tuple[Measurement, ...]
    losses: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def diverged(self) -> str:
        """Number of diverged seeds, or the step of divergence if all did; empty if none did."""
        steps = [run.diverged_at for run in self.runs if run.diverged_at is not None]
        if len(steps) < len(self.runs):
            return f"{len(steps)} of {len(self.runs)} seeds diverged" if steps else ""
        return f"diverged at step {min(steps):,}"

    @property
    def unfinished(self) -> str:
        """Steps of the seeds that are not fully trained, as text; empty if all are."""
        steps = list(filter(None, (run.unfinished for run in self.runs)))
        if not steps or self.superseded:
            return ""
        seeds = f"{len(steps)} of {len(self.runs)} seeds " if self.runs[1:] else ""
        return f"{seeds}trained {steps[0]}"

    @property
    def base(self) -> float | None:
        """Base of the rotary variant; None for a window, masked distances, or no single base."""
        model = self.config.model
        return (
            None if model.window or model.masked_distances else getattr(model.rotary, "base", None)
        )

    @property
    def words(self) -> str:
        """The label in words, for figures and sentences."""
        return as_words(self.label)

    @functools.cached_property
    def stroke(self) -> Stroke:
        """Color of the base, and line style of the window or of the heads, as in all figures."""
        model = self.config.model
        return stroke_of(getattr(model.rotary, "base", None), model.num_heads, model.window)

    @property
    def theory_length(self) -> int | None:
        """First distance with B_m < 0, tokens; None if there is none."""
        return self.theory.first_violation if self.theory else None

    @property
    def is_control(self) -> bool:
        """True for a member with a known answer: a window, masked distances, or no rotation."""
        model = self.config.model
        rotates = np.any(model.position_table(self.trained_length).inv_freq)
        return bool(model.window or model.masked_distances or not rotates)

    @property
    def trained_length(self) -> int:
        """Tokens of a training row."""
        return self.config.data.context_length

    @functools.cached_property
    def trained(self) -> dict[tuple[str, int], Measurement]:
        """Measurements under the variant of training, by task and ascending length."""
        return {(m.task, m.length): m for m in self.measurements if m.variant == TRAINED}

    def select_task(self, task: str) -> list[Measurement]:
        """Return the measurements of `trained` on one task, by ascending length."""
        return [measured for (name, _), measured in self.trained.items() if name == task]

    def nearest(self, task: str) -> Measurement | None:
        """Return the measurement of `trained` at the length nearest to the trained length."""
        return min(
            self.select_task(task), key=lambda m: abs(m.length - self.trained_length), default=None
        )

    @functools.cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Effective context by task, of the `nearest` measurement."""
        nearest = (self.nearest(task) for task, _ in self.trained)
        return {m.task: m.estimate for m in nearest if m and m.kind == "retrieval"}


def read(
    runs: Sequence[RunDirectory], notice: Callable[[str], None] = lambda line: None
) -> list[Member]:
    """Group runs that differ only in seeds or machine, and read their results.

    Args:
      runs: run directories; runs of equal seeds, such as copies, count as one seed.
      notice: called with one line for each metrics.jsonl that lost rows, for runs of equal seeds,
        if tokenizers differ, for members of a sweep whose rows are of several steps, and for seeds
        without rows of the step that is shown.

    Raises:
      ValueError: if result rows are damaged or belong to another run, or a config.json is not what
        the newest checkpoint was made with.
    """
    # Several paths may lead to one run.
    runs = list({run.path.resolve(): run for run in runs}.values())
    rows = {run: _share_texts(rows_lib.read_run(run)) for run in runs}
    groups: dict[tuple, dict[RunDirectory, rows_lib.Rows]] = {}
    for run in runs:
        check_newest_config(run)
        groups.setdefault(tuple(setting(run.config).items()), {})[run] = rows[run]
        if damage := metrics_damage(run):
            notice(damage)
    tokenizers = {run.record.get("tokenizer"): run.path for run in rows}
    if len(tokenizers) > 1:
        paths = " and ".join(map(str, tokenizers.values()))
        notice(f"{paths} have other tokenizers: compare their bits per byte, not losses per token")
    for line in _describe_steps(rows):
        notice(line)
    for group in groups.values():
        if len(set(map(_seeds, group))) < len(group):
            paths = " and ".join(str(run.path) for run in group)
            notice(f"{paths}: some runs have equal seeds; their answers count as one seed")
        for line in _describe_left_out(group):
            notice(line)
    members = [member for group in groups.values() for member in make_members(group)]
    members.sort(key=_page_order)
    sweeps = [sweep_of(member.runs[0]) for member in members]
    names = labels([member.config for member in members], sweeps)
    results = []
    for index, (member, name) in enumerate(zip(members, names, strict=True)):
        state = member.diverged or member.unfinished
        label = name + member.label + (f" ({state})" if state else "")
        results.append(dataclasses.replace(member, index=index, label=label))
    return results


def _share_texts(rows: rows_lib.Rows) -> rows_lib.Rows:
    """Return rows whose texts are references to shared objects, of eight bytes in each row."""
    for name in [name for name, column in rows.items() if column.dtype.kind == "U"]:
        column, texts = rows[name], np.empty(len(rows[name]), object)
        for start in range(0, len(column), _BLOCK):
            block = slice(start, start + _BLOCK)
            texts[block] = list(map(sys.intern, column[block].tolist()))
        rows[name] = texts
    return rows


_BLOCK = 2**16


def _describe_steps(rows: Mapping[RunDirectory, rows_lib.Rows]) -> Iterator[str]:
    """Yield a line for each sweep whose members, trained equally long, show rows of other steps."""
    sweeps: dict[tuple, dict[str, int]] = {}
    for run, table in rows.items():
        folder, end = sweep_of(run), stages.split(run.config)[-1].end
        if len(table["step"]) and run.diverged_at is None and folder:
            sweeps.setdefault((folder, end), {})[run.name] = table["step"].max().item()
    for (folder, _), steps in sweeps.items():
        if len(set(steps.values())) > 1:
            names = ", ".join(f"{name} at {step:,}" for name, step in steps.items())
            yield f"{folder}: members were evaluated at other steps ({names}); compare them at one"


def _describe_left_out(group: Mapping[RunDirectory, rows_lib.Rows]) -> Iterator[str]:
    """Yield a line for each step that some seeds lack, which `measurements` leaves out."""
    first = next(iter(group))
    newest: dict[tuple, dict[RunDirectory, int]] = {}  # steps by task, variant and stage
    for run, rows in group.items():
        rows = drop_diverged(run, rows)
        columns = (rows[name].tolist() for name in ("task", "rotary", "step"))
        for task, rotary, step in sorted(set(zip(*columns, strict=True))):
            newest.setdefault((task, rotary, stages.stage_at(first.config, step).number), {})[
                run
            ] = step
    tasks_left_out: dict[tuple, list[str]] = {}
    for (task, *_), steps in newest.items():
        last = max(steps.values())
        if behind := tuple(run.path for run, step in steps.items() if step < last):
            tasks_left_out.setdefault((last, behind), []).append(task)
    for (last, behind), names in tasks_left_out.items():
        yield (
            f"{' and '.join(map(str, behind))}: left out of {', '.join(dict.fromkeys(names))}, "
            f"which other seeds have at step {last:,}; evaluate all at one step (--step)"
        )


def _page_order(member: Member) -> tuple:
    config = member.config.model
    base = member.base is None, member.base or 0, config.window is not None
    return *base, member.trained_length


def make_members(group: Mapping[RunDirectory, rows_lib.Rows]) -> Iterator[Member]:
    """Yield a member for each evaluated stage and for the last trained stage."""
    runs = tuple(group)
    first, seeds = runs[0], tuple(sorted(set(map(_seeds, runs))))
    rows = rows_lib.concatenate([_number_seeds(run, rows, seeds) for run, rows in group.items()])
    evaluated = np.unique(rows["step"]).tolist()
    stage_numbers = {step: stages.stage_at(first.config, step).number for step in evaluated}
    newest = max([*first.steps(), *evaluated], default=0)  # rows may be kept without checkpoints
    last = stages.stage_at(first.config, newest).number
    numbers = sorted({*stage_numbers.values(), last})
    for number in numbers:
        steps = [step for step, stage in stage_numbers.items() if stage == number] or [newest]
        config = first.config_at(max(steps))
        in_stage = np.isin(rows["step"], steps)
        stage_rows = rows_lib.where(rows, in_stage)
        yield Member(
            index=0,  # `read` sets it, which depends on all members
            label=f"@{max(steps)}" if len(numbers) > 1 else "",
            step=max(steps) if len(numbers) > 1 else None,
            runs=runs,
            seeds=seeds,
            config=config,
            superseded=number != last,
            theory=of_model(config.model, config.data.context_length),
            measurements=tuple(
                sorted(
                    measurements(stage_rows, config),
                    key=lambda m: (m.variant != TRAINED, *_task_order(m.task)),
                )
            ),
            losses=tuple(filter(None, map(_loss, runs))) if number == last else (),
        )


def _seeds(run: RunDirectory) -> tuple[int, int]:
    return run.config.seed, run.config.data.seed


def _number_seeds(
    run: RunDirectory, rows: rows_lib.Rows, seeds: Sequence[tuple[int, int]]
) -> rows_lib.Rows:
    """Return a run's rows with `seed` an index of `seeds`.

    The recorded `seed` is that of the initialization only, which several runs may share.
    """
    rows = drop_diverged(run, rows)
    for name in set(rows["task"].tolist()):
        try:
            evals.parse(name)
        except ValueError as error:
            raise ValueError(f"{run.results_path}: {error}") from error
    return rows | {"seed": np.full_like(rows["seed"], seeds.index(_seeds(run)))}


def _loss(run: RunDirectory) -> tuple[np.ndarray, np.ndarray] | None:
    records = [record for record in run.read_metrics() if record["loss"] is not None]
    if not records:
        return None
    values = np.array([(record["tokens"], record["loss"]) for record in records], float)
    blocks = np.array_split(values, min(len(values), LOSS_POINTS))
    tokens, loss = np.array([block.mean(0) for block in blocks]).T
    return tokens, loss


def describe_intervals(members: Sequence[Member]) -> str:
    """Return the sources of variance in the 95% intervals of effective context."""
    counts = {e.num_seeds for member in members for e in member.estimates.values()}
    if max(counts, default=1) == 1:
        return "documents (one seed)"
    single = " (documents only for members with one seed)" if 1 in counts else ""
    return f"seeds and documents{single}"


def describe_trend(members: Sequence[Member], task: str) -> str:
    """Return what recall does with a smaller base, as a title.

    Members that differ in the base alone are compared, the smallest with the largest base: their
    95% intervals of effective context must not overlap.
    """
    groups: dict[str, list[tuple[float, Estimate]]] = {}
    for member in members:
        if member.base is not None and task in member.estimates:
            name = re.sub(r"\bbase=[^,@]+,?", "", member.label.partition(" (")[0])
            groups.setdefault(name, []).append((member.base, member.estimates[task]))
    signs = set()
    for group in groups.values():
        (small, first), (large, last) = (end(group, key=lambda x: x[0]) for end in (min, max))
        if small < large and first.has_l50 and last.has_l50:
            ends = [e.longest if e.verdict.startswith(">") else e.ci_low for e in (first, last)]
            if first.ci_high < ends[1] and not first.verdict.startswith(">"):
                signs.add("earlier")
            if last.ci_high < ends[0] and not last.verdict.startswith(">"):
                signs.add("later")
    if len(signs) == 1:
        return f"Recall on {task} ends {signs.pop()} with a smaller base"
    return f"How far members recall on {task}"


def describe_range(subject: str, values: Mapping[str, float]) -> str:
    """Return the lowest and the highest value and whose they are, as a title."""
    known = {name: value for name, value in values.items() if math.isfinite(value)}
    ends = dict.fromkeys(end(known, key=known.__getitem__) for end in (min, max) if known)
    texts = [
        f"{known[name]:.3g} ({name})" if len(known) > 1 else f"{known[name]:.3g}" for name in ends
    ]
    return f"{subject}: {' to '.join(texts)}" if texts else subject


def sort_tasks(names: Iterable[str]) -> list[str]:
    """Return tasks in the page's order: `TaskView.order`, then by name."""
    return sorted(set(names), key=_task_order)


def _task_order(name: str) -> tuple:
    return view_of(name).order, name


def tasks(members: Sequence[Member], *kinds: str) -> list[str]:
    """Return all evaluated tasks of these kinds (default: retrieval), the leading task first."""
    trained = [measured for member in members for measured in member.trained.values()]
    return sort_tasks(m.task for m in trained if m.kind in (kinds or ("retrieval",)))


def learned(members: Sequence[Member], task: str) -> list[Member]:
    """Return the members with an effective context on a retrieval task, or an interval of it."""
    return [
        member for member in members if task in member.estimates and member.estimates[task].has_l50
    ]
