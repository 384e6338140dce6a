"""What is shown of each member: its measurements, and the theory of its own frequencies."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from evals import rows as rows_lib
from evals.effective_context import Estimate, estimate
from evals.rows import Rows
from experiment.config import ExperimentConfig, MeshConfig
from experiment.run import RunDirectory
from model import rotary as rotary_lib
from theory.predictions import Predictions, predict

PERPLEXITY = "perplexity"
TASK_ORDER = ("kv", "lagcopy", "lines")  # the first one that was evaluated leads the page

LOSS_POINTS = 150


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerplexityCurve:
    """Mean nats a token by place in the document, over all documents and seeds.

    Attributes:
      positions: int `[P]`, first position of each bin, tokens.
      nll, error: `[P]`, nats a token and its standard error over documents.
    """

    positions: np.ndarray
    nll: np.ndarray
    error: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One setting of a sweep; its seeds are its runs.

    Attributes:
      index: place in the page's order, from 0: bases ascending, then controls.
      label: the run directory's name without its seed.
      runs: one run directory a seed.
      config: of the first run.
      theory: of the configuration's own frequencies.
      estimates: effective context by task.
      losses: (tokens seen, training loss in nats/token) of each run that has metrics, at most
        `LOSS_POINTS` of them, each the mean of the records it stands for.
      perplexity: None if it was not evaluated.
    """

    index: int
    label: str
    runs: tuple[RunDirectory, ...]
    config: ExperimentConfig
    theory: Predictions
    estimates: dict[str, Estimate]
    losses: tuple[tuple[np.ndarray, np.ndarray], ...]
    perplexity: PerplexityCurve | None

    @property
    def base(self) -> float | None:
        """The base of its schedule; None for a control, which has none or a window."""
        return None if self.config.model.window else getattr(self.config.model.rotary, "base", None)

    @property
    def trained_length(self) -> int:
        """Tokens of a training row."""
        return self.config.data.context_length


def read(runs: Sequence[RunDirectory]) -> list[Member]:
    """Groups runs that differ in seed or machine only, and reads what was measured."""
    groups: dict[ExperimentConfig, list[RunDirectory]] = {}
    for run in runs:
        data = dataclasses.replace(run.config.data, seed=0)
        setting = dataclasses.replace(run.config, name="", seed=0, data=data, mesh=MeshConfig())
        groups.setdefault(setting, []).append(run)
    members = [_member(tuple(group)) for group in groups.values()]
    labels = [member.label for member in members]
    members = [
        dataclasses.replace(member, label=f"{member.runs[0].path.parent.name}/{member.label}")
        if labels.count(member.label) > 1
        else member
        for member in members
    ]
    members.sort(key=lambda m: (m.base is None, m.base or 0, m.config.model.window is not None))
    return [dataclasses.replace(member, index=index) for index, member in enumerate(members)]


def _member(runs: tuple[RunDirectory, ...]) -> Member:
    config = runs[0].config
    parts = runs[0].path.resolve().name.split(",")
    table = config.model.rotary_table(config.data.context_length)
    rows = rows_lib.concatenate([_own_rows(run) for run in runs])
    return Member(
        index=0,
        label=",".join(part for part in parts if not part.startswith("seed=")) or config.name,
        runs=runs,
        config=config,
        theory=predict(table.inv_freq),
        estimates=_estimates(rows, config.data.context_length),
        losses=tuple(curve for run in runs if (curve := _loss(run)) is not None),
        perplexity=_perplexity(rows),
    )


def _loss(run: RunDirectory) -> tuple[np.ndarray, np.ndarray] | None:
    records = [record for record in run.read_metrics() if record["loss"] is not None]
    if not records:
        return None
    values = np.array([(record["tokens"], record["loss"]) for record in records], float)
    blocks = np.array_split(values, min(len(values), LOSS_POINTS))
    tokens, loss = np.array([block.mean(0) for block in blocks]).T
    return tokens, loss


def _own_rows(run: RunDirectory) -> Rows:
    """What was measured under the schedule the run was trained with, not under another one."""
    path = run.path / "results.jsonl"
    rows = rows_lib.read(path) if path.exists() else rows_lib.concatenate([])
    return rows_lib.select(rows, rotary=rotary_lib.expression(run.config.model.rotary))


def _estimates(rows: Rows, trained_length: int) -> dict[str, Estimate]:
    estimates = {}
    for task in np.unique(rows["task"]).tolist():
        if task != PERPLEXITY:
            of_task = _latest(rows_lib.select(rows, task=task))
            # At the trained length where that was asked, else at the nearest to it.
            lengths = np.unique(of_task["length"])
            length = lengths[np.abs(lengths - trained_length).argmin()]
            estimates[task] = estimate(rows_lib.select(of_task, length=length))
    return estimates


def _latest(rows: Rows) -> Rows:
    """Of the last checkpoint evaluated; a seed that has not come so far is left out."""
    return rows_lib.select(rows, step=rows["step"].max(initial=-1))


def _perplexity(rows: Rows) -> PerplexityCurve | None:
    rows = _latest(rows_lib.select(rows, task=PERPLEXITY))
    if not len(rows["task"]):
        return None
    rows = rows_lib.select(rows, length=rows["length"].max())
    positions, index = np.unique(rows["distance"], return_inverse=True)
    nll, error = np.zeros(len(positions)), np.zeros(len(positions))
    for place in range(len(positions)):
        values, tokens = rows["nll"][index == place], rows["num_tokens"][index == place]
        nll[place] = np.average(values, weights=tokens)
        error[place] = values.std() / math.sqrt(len(values))
    return PerplexityCurve(positions=positions, nll=nll, error=error)


def tasks(members: Sequence[Member]) -> list[str]:
    """Every retrieval task that was evaluated, the one that leads the page first."""
    evaluated = {task for member in members for task in member.estimates}
    known = [task for task in TASK_ORDER if task in evaluated]
    return known + sorted(evaluated - set(known))
