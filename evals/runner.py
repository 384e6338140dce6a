"""Asks checkpoints: run directories -> result rows, members of the same shape side by side."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

import evals
from data.files import check_writable
from data.task import Document, Task
from data.tokenizer import Tokenizer
from evals import cost, kinds, rows
from evals.copies import Copies
from evals.cost import Readers
from evals.estimate.sequential import next_round
from evals.options import Options
from evals.progress import Progress, duration
from evals.rows import Rows
from evals.score import AnswerScores, Candidate, check_fits, pass_shape, score
from evals.text import MissingTextError
from experiment import stages
from experiment.checkpoint import restore_params
from experiment.config import ExperimentConfig, chosen_rotary
from experiment.identity import copy_notice, has_params, run_id
from experiment.items import metrics_damage
from experiment.memory import free_device_memory
from experiment.run import RunDirectory, find_runs
from model import rotary as rotary_lib
from model.config import ModelConfig
from model.positions import position_table
from model.rotary import Pattern
from model.rotary.nope import Nope
from model.transformer import Params

Evaluated = list[tuple[RunDirectory, ExperimentConfig, Rows]]

# However wide an interval stays, no more than this many times the documents first asked.
_MAX_FACTOR = 16


class Loaded(NamedTuple):
    """Parameters to evaluate.

    Attributes:
      name: of the run directory.
      config: in force at `step`.
      variants: to evaluate with.
      run: where they lie; None: in memory only.
      run_id: identity of the run (`experiment.identity`); empty: parameters of no run.
    """

    name: str
    config: ExperimentConfig
    tokenizer: Tokenizer
    params: Params
    step: int
    variants: tuple[Pattern, ...]
    run: RunDirectory | None = None
    run_id: str = ""

    def candidate(self, rotary: Pattern) -> Candidate:
        """As `evals.score` reads it."""
        model = dataclasses.replace(self.config.model, rotary=rotary)
        table = functools.partial(position_table, model, self.config.data.context_length)
        return Candidate(self.params, functools.lru_cache(table))


class Questions(NamedTuple):
    """What one task asks at one length."""

    task: Task
    length: int
    documents: Sequence[Document]


class Group:
    """Members that read the same documents in one program.

    Attributes:
      members: of one shape.
      questions: asked of all of them.
      owners: every member with every variant of its own.
    """

    def __init__(self, members: list[Loaded], options: Options, notice: Callable[[str], None]):
        self.members = members
        self.owners = [(member, rotary) for member in members for rotary in member.variants]
        self._network = network(members[0].config.model)
        self._candidates = [member.candidate(rotary) for member, rotary in self.owners]
        num_variants = max(len(member.variants) for member in members)
        self._readers = Readers(num_variants, len(self.owners))
        self.questions = self._questions(options, notice)

    def _questions(self, options: Options, notice: Callable[[str], None]) -> list[Questions]:
        member = self.members[0]
        config = member.config
        lengths = options.lengths or config.evals.lengths or (config.data.context_length,)
        for length in lengths:
            cost.check_length(self._network, self._candidates[0].table_for(length), length)
        held_out = member.run.held_out_path if member.run else None
        questions, skipped = [], []
        for name, length in itertools.product(options.tasks or config.evals.tasks, lengths):
            task = evals.parse(name)
            try:
                context = evals.asked(config, member.tokenizer, length, held_out=held_out)
                count = options.documents or task.num_documents(context, config.evals.documents)
                cost.check_documents(task, context, count, self._readers, notice)
                documents = task.documents(context, range(count))
                if not documents:
                    raise ValueError(f"{name} at length {length} has nothing to ask here")
            except cost.DoesNotFitError:
                raise
            except ValueError as error:
                if options.tasks and not isinstance(error, MissingTextError):
                    raise
                skipped.append(error)
                continue
            questions.append(Questions(task, length, documents))
        if options.tasks and not questions:
            raise skipped[0]
        for reason in dict.fromkeys(map(str, skipped)):
            notice(f"left out: {reason}")
        return questions

    def check_fits(self) -> None:
        """Raises ValueError if something asked does not fit the memory; the longest comes first."""
        for part in sorted(self.questions, key=lambda part: -part.length):
            check_fits(self._network, self._candidates, len(part.documents), part.length)

    def cost(self, questions: Iterable[Questions]) -> int:
        """Documents read by all candidates."""
        return sum(len(part.documents) for part in questions) * len(self._candidates)

    def flops(self, questions: Iterable[Questions]) -> float:
        """Return the FLOPs of scoring the questions, rows that fill up passes included."""
        config = self.members[0].config
        total = 0.0
        for part in questions:
            per_pass, B = pass_shape(len(self.owners), len(part.documents), part.length)
            rows = -(-len(part.documents) // B) * B
            candidates = -(-len(self.owners) // per_pass) * per_pass
            total += rows * candidates * cost.flops_per_row(config, part.length)
        return total

    def pass_bytes(self) -> int:
        """Return the estimated device memory of the largest forward pass."""
        largest = 0
        for part in self.questions:
            per_pass, B = pass_shape(len(self.owners), len(part.documents), part.length)
            table = self._candidates[0].table_for(part.length)
            in_bytes = cost.pass_bytes(self._network, table, B, part.length)
            largest = max(largest, per_pass * in_bytes)
        return largest

    def host_bytes(self) -> int:
        """Return the estimated host memory of documents and result rows."""
        return sum(cost.host_bytes(part.documents, self._readers) for part in self.questions)

    def ask(self, questions: Questions, advance: Callable[[int], None]) -> list[Rows]:
        """The result rows of each of `owners`."""
        documents = questions.documents
        scores = score(
            self._network, self._candidates, documents, questions.length, advance=advance
        )
        return [
            to_rows(member, rotary, questions, AnswerScores(*fields))
            for (member, rotary), *fields in zip(self.owners, *scores, strict=True)
        ]

    def more(
        self, questions: Questions, results: Sequence[Rows], precision: float
    ) -> Questions | None:
        """What another round asks, if one is needed: near where accuracy falls."""
        if questions.task.kind != "retrieval":
            return None
        all_rows = rows.concatenate(results)
        max_documents = _MAX_FACTOR * len({document.number for document in questions.documents})
        member, documents = self.members[0], []
        first = int(all_rows["document"].max()) + 1
        for low, high, count in next_round(
            all_rows, octaves=precision, max_documents=max_documents
        ):
            context = evals.asked(member.config, member.tokenizer, questions.length, (low, high))
            documents += questions.task.documents(context, range(first, first + count))
            first += count
        return questions._replace(documents=documents) if documents else None


def evaluate(
    run_paths: Sequence[str | Path],
    options: Options | None = None,
    *,
    console: Console | None = None,
    copies: Copies | None = None,
) -> Evaluated:
    """Evaluates runs and writes their result rows.

    Args:
      run_paths: run directories and sweep directories.
      options: what to ask.
      console: where progress and notices go; None: nowhere.
      copies: where rows go; None: into the runs.

    Returns:
      Each run, its config at that step, and its new rows.

    Raises:
      ValueError: for a directory that is no run or cannot be written to, a length at which a task
        cannot be asked or that does not fit the memory, a variant or step that does not exist, a
        results file of another schema.
    """
    options, console = options or Options(), console or Console(quiet=True)
    notice = functools.partial(
        console.print, style="yellow", markup=False, highlight=False, soft_wrap=True
    )
    # Once, however many of the paths lead to it.
    runs = list({run.path.resolve(): run for run in find_runs(run_paths)}.values())
    # Before hours of work: a file that cannot be added to is an error now.
    for run in runs:
        if copies is None:
            check_writable(run.path, "keep the rows elsewhere: --out DIR")
        rows.read_of(run)
    members = _load(runs, options, notice)
    groups = [Group(alike, options, notice) for alike in _by_shape(members, options)]
    if not any(group.questions for group in groups):
        raise ValueError("no task of the config can be asked here; name others with --tasks")
    cost.check_host(sum(group.host_bytes() for group in groups), "all documents")
    if not console.quiet:
        console.print(_estimate(groups, options), markup=False, highlight=False, soft_wrap=True)
    for group in groups:
        group.check_fits()

    runs = [member.run for member in members if member.run]
    places = {run.path: copies.of(run) if copies else run for run in runs}
    for run in runs if copies else ():  # rows in --out may be of a run that lay here before
        rows.read_of(run, places[run.path].results_path)
    results = {run.path: rows.columns([]) for run in runs}
    with Progress(console) as progress:
        total = sum(group.cost(group.questions) for group in groups)
        bar = progress.add_task("", total=total)
        progress.flops_left = sum(group.flops(group.questions) for group in groups)
        for group, asked in [(each, asked) for each in groups for asked in each.questions]:
            progress.update(bar, description=f"{asked.task.expression} at {asked.length}")

            def advance(documents: int, group: Group = group, length: int = asked.length) -> None:
                flops = cost.flops_per_row(group.members[0].config, length)
                progress.advance(bar, documents, documents * flops)

            new = group.ask(asked, advance)
            while options.precision and (more := group.more(asked, new, options.precision)):
                total += group.cost([more])
                progress.flops_left += group.flops([more])
                progress.update(bar, total=total)
                added = group.ask(more, advance)
                new = [rows.concatenate(pair) for pair in zip(new, added, strict=True)]
            # Written as soon as they are known: whoever stops here keeps what there is.
            for member in group.members:
                answered = zip(new, group.owners, strict=True)
                own = rows.concatenate([found for found, of in answered if of[0] is member])
                assert member.run
                rows.add(places[member.run.path].results_path, own)
                results[member.run.path] = rows.concatenate([results[member.run.path], own])
    return [(m.run, m.config, results[m.run.path]) for m in members if m.run]


def _estimate(groups: Sequence[Group], options: Options) -> str:
    """Return one line: how many documents are scored, how long it takes, and the memory."""
    documents = sum(group.cost(group.questions) for group in groups)
    seconds = cost.seconds(sum(group.flops(group.questions) for group in groups), documents)
    suffix = f" (up to {_MAX_FACTOR} times as many with --precision)" if options.precision else ""
    device, free = max(group.pass_bytes() for group in groups), free_device_memory()
    host = sum(group.host_bytes() for group in groups)
    return (
        f"scoring {documents:,} documents{suffix}: about {duration(seconds)}, "
        f"{cost.size(device)} for the model and {cost.size(host)} for documents and rows"
        + (f"; {cost.size(free)} free" if free is not None else "")
    )


def check_lengths(config: ExperimentConfig) -> None:
    """Reject lengths of the config's evaluation that no memory of this device holds.

    Raises:
      ValueError: as `evals.cost.check_length`.
    """
    table = position_table(config.model, config.data.context_length)
    for length in config.evals.lengths or (config.data.context_length,):
        cost.check_length(network(config.model), table, length)


def ask_in_memory(
    configs: Sequence[ExperimentConfig],
    params: Sequence[Params],
    tokenizer: Tokenizer,
    options: Options | None = None,
) -> list[dict[str, float]]:
    """Asks members of a sweep while they train; nothing is written.

    Args:
      configs: of the members, equal but for what `Group` may differ in.
      params: theirs, as numpy or device arrays.
      tokenizer: theirs.
      options: what to ask; `step` is not looked at.

    Returns:
      Each member's `evals.kinds.Kind.value` by task, or `task@length` where lengths are several.
    """
    members = [
        Loaded("", config, tokenizer, member_params, 0, (config.model.rotary,))
        for config, member_params in zip(configs, params, strict=True)
    ]
    group = Group(members, options or Options(), lambda text: None)
    several = len({part.length for part in group.questions}) > 1
    values: list[dict[str, float]] = [{} for _ in members]
    for questions in group.questions:
        name = questions.task.expression + (f"@{questions.length}" if several else "")
        for value, member_rows in zip(
            values, group.ask(questions, lambda documents: None), strict=True
        ):
            value[name] = kinds.of(member_rows).value(member_rows)
    return values


def checkpoints(
    paths: Sequence[str], steps: str | None
) -> list[tuple[Sequence[str | Path], int | None]]:
    """Paths to evaluate at each step that `--step` names.

    Raises:
      ValueError: if `steps` is neither numbers nor `stages`.
    """
    if steps == "stages":
        ends = [
            (run.path, stage.end) for run in find_runs(paths) for stage in stages.split(run.config)
        ]
        by_step = dict.fromkeys(end for _, end in ends)
        return [([path for path, of in ends if of == end], end) for end in by_step]
    try:
        return [(paths, int(step)) for step in steps.split(",")] if steps else [(paths, None)]
    except ValueError:
        raise ValueError(
            f"--step {steps} is neither numbers of checkpoints, like 500,900, nor `stages`"
        ) from None


def network(config: ModelConfig) -> ModelConfig:
    """What the compiled program reads of a member: its sizes. The rest is in its table.

    Float32, because bfloat16 logits tie, and ties are answers won or lost by an id's number.
    """
    return dataclasses.replace(
        config, rotary=Nope(), window=None, compute_dtype="float32", remat="none"
    )


def _load(
    runs: Sequence[RunDirectory], options: Options, notice: Callable[[str], None]
) -> list[Loaded]:
    """The checkpoints, each with the variants it can take; of copies of one run, the first.

    Raises:
      ValueError: for a variant that no run can take.
    """
    members, rejections = [], {text: [] for text in options.variants}
    originals: dict[str, RunDirectory] = {}
    for run in runs:
        params, step = restore_params(run, options.step)
        identity = run_id(run, step)
        original = originals.setdefault(identity, run) if has_params(identity) else run
        if original is not run:
            notice(copy_notice(original, run))
            continue
        if damage := metrics_damage(run):
            notice(damage)
        config, variants = run.config_at(step), {}
        config = dataclasses.replace(config, data=run.with_own_tokenizer(config.data))
        for text in options.variants:
            try:
                variants[chosen_rotary(text, config)] = None
            except ValueError as error:
                rejections[text].append((run, error))
        loaded = Loaded(
            run.name, config, run.tokenizer, params, step, tuple(variants), run, identity
        )
        members.append(loaded)
    for rejected in rejections.values():
        if len(rejected) == len(members):
            raise rejected[0][1]
        for run, error in rejected:
            notice(f"{run.name}: left out: {error}")
    return [member for member in members if member.variants]


def _by_shape(members: Iterable[Loaded], options: Options) -> list[list[Loaded]]:
    """Members that can share a program and documents, together; in order of appearance."""
    groups: dict[Hashable, list[Loaded]] = {}
    for member in members:
        config, data = member.config, member.config.data
        # Seeds of one setting are asked the same, also where `precision` asks on.
        if not any(evals.parse(name).of_training for name in options.tasks or config.evals.tasks):
            data = dataclasses.replace(data, seed=0)
        shape = network(config.model), data, config.evals, member.tokenizer
        groups.setdefault(shape, []).append(member)
    return list(groups.values())


def to_rows(member: Loaded, rotary: Pattern, questions: Questions, scores: AnswerScores) -> Rows:
    """Result rows of one member's answers under one variant."""
    documents = questions.documents
    answers = np.concatenate([document.answers for document in documents])

    def per_answer(value_of: Callable[[Document], np.ndarray | int | None]) -> np.ndarray:
        values = ((len(document.answers), value_of(document)) for document in documents)
        return np.concatenate([np.full(n, 0 if x is None else x) for n, x in values])

    columns = {
        "task": questions.task.expression,
        "split": "validation",
        "run": member.name,
        "run_id": member.run_id,
        "step": member.step,
        "seed": member.config.seed,
        "rotary": rotary_lib.expression(rotary),
        "base": float(getattr(rotary, "base", np.nan)),
        "trained_length": member.config.data.context_length,
        "length": questions.length,
        "chance": questions.task.chance(member.tokenizer),
        "distance": answers[:, 2],
        "document": per_answer(lambda document: document.number),
        "query": per_answer(lambda d: d.first_query + np.arange(len(d.answers))),
        "num_tokens": answers[:, 1],
        "num_bytes": per_answer(lambda document: document.num_bytes),
        "num_words": per_answer(lambda document: document.num_words),
        **scores._asdict(),
    }
    return {name: np.full(len(answers), columns[name]) for name in rows.SCHEMA}
