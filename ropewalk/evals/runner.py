"""Evaluation of run directories; members of equal shape share one program."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress

from ropewalk import evals
from ropewalk.data.task import Document, Task
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import cost, kinds, rows
from ropewalk.evals.copies import Copies
from ropewalk.evals.estimate.sequential import next_round
from ropewalk.evals.options import Options, check_variants
from ropewalk.evals.rows import Rows
from ropewalk.evals.score import AnswerScores, Candidate, check_fits, score
from ropewalk.evals.spread import spread_score
from ropewalk.evals.text import MissingTextError
from ropewalk.experiment import distributed
from ropewalk.experiment.config import ExperimentConfig, chosen_rotary
from ropewalk.experiment.identity import copy_notice, run_id
from ropewalk.experiment.items import metrics_damage
from ropewalk.experiment.loaded import LoadedRun, load
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.model import rotary as rotary_lib
from ropewalk.model import transformer
from ropewalk.model.positions import record_learned
from ropewalk.model.rotary import Pattern
from ropewalk.model.transformer import Params
from ropewalk.utils.files import check_writable
from ropewalk.utils.messages import counted

Evaluated = list[tuple[RunDirectory, ExperimentConfig, Rows]]

# Limit of all rounds of `precision`, as a multiple of the first round's documents.
_MAX_FACTOR = 16


class Loaded(NamedTuple):
    """Parameters to evaluate.

    Attributes:
      name: name of the run directory.
      config: config in force at `step`.
      variants: rotary variants to evaluate with.
      run: run directory of the parameters; None: parameters in memory.
      run_id: identity of the run (`experiment.identity`); empty for parameters in memory.
    """

    name: str
    config: ExperimentConfig
    tokenizer: Tokenizer
    params: Params
    step: int
    variants: tuple[Pattern, ...]
    run: RunDirectory | None = None
    run_id: str = ""

    @classmethod
    def from_run(
        cls, loaded: LoadedRun, variants: Sequence[Pattern] = (), run_id: str = ""
    ) -> "Loaded":
        """Return a run to evaluate, on the text that its own copy of its tokenizer was made for."""
        run, config = loaded.directory, loaded.config
        config = dataclasses.replace(config, data=run.with_own_tokenizer(config.data))
        fields = run.name, config, loaded.tokenizer, loaded.params, loaded.step, tuple(variants)
        return cls(*fields, run, run_id)

    def candidate(self, rotary: Pattern) -> Candidate:
        """Return the candidate that `evals.score` scores with one variant."""
        model = dataclasses.replace(self.config.model, rotary=rotary)
        return Candidate.from_model(self.params, model, self.config.data.context_length)


class Questions(NamedTuple):
    """Documents of one task at one length."""

    task: Task
    length: int
    documents: Sequence[Document]


class Group:
    """Members that read the same documents in one program.

    Attributes:
      members: members of one shape.
      questions: documents that all members read.
      owners: member and variant of each candidate.
      answer_bytes: host memory of the result rows of one answer (`evals.cost`).
    """

    def __init__(self, members: Sequence[Loaded], options: Options, notice: Callable[[str], None]):
        self.members = members
        self.owners = [(member, rotary) for member in members for rotary in member.variants]
        self._config = members[0].config.model.forward_architecture()
        self._candidates = [member.candidate(rotary) for member, rotary in self.owners]
        self.answer_bytes = cost.answer_bytes([len(member.variants) for member in members])
        self.questions = self._questions(options, notice)

    def _questions(self, options: Options, notice: Callable[[str], None]) -> list[Questions]:
        member = self.members[0]
        config = member.config
        lengths = options.lengths or config.evals.lengths or (config.data.context_length,)
        questions, skipped = [], []
        names = options.tasks or config.evals.tasks
        tasks = {evals.parse(name).expression: name for name in names}  # each is asked once
        for name, length in itertools.product(tasks.values(), dict.fromkeys(lengths)):
            task = evals.parse(name)
            note = _note_untrained(task, member)
            try:
                if note and not options.tasks:
                    raise ValueError(note)
                context = evals.task_context(config, member.tokenizer, length, run=member.run)
                count = options.documents or task.num_documents(context, config.evals.documents)
                cost.check_documents(task, context, count, self.answer_bytes)
                documents = task.documents(context, range(count))
                if not documents:
                    raise ValueError(f"{name} has no documents at length {length}")
                check_fits(self._config, self._candidates, len(documents), length)
            except cost.DoesNotFitError:
                raise
            except ValueError as error:
                if options.tasks and not isinstance(error, MissingTextError):
                    raise
                skipped.append(error)
                continue
            if note:
                notice(note)
            _report_merged(name, length, documents, notice)
            questions.append(Questions(task, length, documents))
        if options.tasks and not questions:
            raise skipped[0]
        for reason in dict.fromkeys(map(str, skipped)):
            notice(f"skipped: {reason}")
        return questions

    def num_tokens(self, part: Questions) -> int:
        """Return the tokens of the forward passes of all candidates, without padding rows."""
        return len(self.owners) * len(part.documents) * part.length

    def ask(
        self,
        part: Questions,
        advance: Callable[[int], None] = lambda documents: None,
        score: Callable[..., AnswerScores] = score,
    ) -> list[Rows]:
        """Return the result rows of each member; `advance` gets the documents done."""
        documents = part.documents
        scores = score(self._config, self._candidates, documents, part.length, advance=advance)
        by_owner = map(AnswerScores, *scores)
        return [
            rows.concatenate(
                [to_rows(member, rotary, part, next(by_owner)) for rotary in member.variants]
            )
            for member in self.members
        ]

    def next_round(
        self, part: Questions, results: Sequence[Rows], precision: float
    ) -> Questions | None:
        """Return the documents near L50 of the next round, if the precision needs one."""
        if part.task.kind != "retrieval":
            return None
        all_rows = rows.concatenate(results)
        max_documents = _MAX_FACTOR * len({document.number for document in part.documents})
        member, documents = self.members[0], []
        first = int(all_rows["document"].max()) + 1
        for low, high, count in next_round(
            all_rows, octaves=precision, max_documents=max_documents
        ):
            context = evals.task_context(member.config, member.tokenizer, part.length, (low, high))
            documents += part.task.documents(context, range(first, first + count))
            first += count
        return part._replace(documents=documents) if documents else None


def _note_untrained(task: Task, member: Loaded) -> str:
    """Say that a published model has never read documents like those of the task; else ""."""
    imported = member.run is not None and "imported" in member.run.record
    if not task.needs_training or not imported or member.tokenizer.reserves_symbols:
        return ""
    return (
        f"{task.expression}: {member.name} was imported and has never read such documents, which "
        "are ids without text; chat_needles, passkey, needle and lagcopy need no training, or "
        f"train it on them: start_from={member.name} data.retrieval_fraction=0.5"
    )


def _report_merged(
    name: str, length: int, documents: Sequence[Document], notice: Callable[[str], None]
) -> None:
    """Count the documents in which ids of answers hold other text too; see `Document.merged`."""
    merged = {d.number for d in documents if d.merged is not None and d.merged.any()}
    if merged:
        share = f"{len(merged)} of {counted(len({d.number for d in documents}), 'documents')}"
        notice(
            f"{name} at {length}: the tokenizer joins text beside the answer to it in {share}; the "
            "joint ids count as the answer's"
        )


def evaluate(
    run_paths: Sequence[str | Path],
    options: Options | None = None,
    *,
    console: Console | None = None,
    copies: Copies | None = None,
) -> Evaluated:
    """Evaluate runs and write their result rows.

    All devices of all processes score; the first process writes.

    Args:
      run_paths: run directories and sweep directories.
      options: options of the evaluation.
      console: console for progress and notices; None: no output.
      copies: copies of the runs that get the rows; None: the runs themselves.

    Returns:
      Each run, its config at the evaluated step, and its new rows.

    Raises:
      ValueError: for a directory that is not a run or cannot be written to, a length that a task
        does not support or that does not fit the memory, an unknown variant or step, or a results
        file of another schema.
    """
    options, console = options or Options(), console or Console(quiet=True)
    console.quiet |= not distributed.is_primary_host()
    notice = functools.partial(
        console.print, style="yellow", markup=False, highlight=False, soft_wrap=True
    )
    members = _load(_find_runs(run_paths, options, copies), options, notice)
    groups = [Group(alike, options, notice) for alike in _by_shape(members, options)]
    if not any(group.questions for group in groups):
        raise ValueError("no task of the config can be evaluated here; choose others with --tasks")
    parts = [(group, part) for group in groups for part in group.questions]
    needed = sum(cost.host_bytes(part.documents, group.answer_bytes) for group, part in parts)
    cost.check_host(needed, "all documents")
    count = sum(len(group.owners) * len(part.documents) for group, part in parts)
    suffix = f" (up to {_MAX_FACTOR} times as many with --precision)" * bool(options.precision)
    console.print(f"scoring {counted(count, 'documents')}{suffix}", highlight=False)

    runs = [member.run for member in members if member.run]
    with distributed.refusing_together():
        targets = _targets(runs, copies)
    results = {run.path: rows.columns([]) for run in runs}
    advice = "Start all processes again; the rows scored so far are kept."
    on_terminal = console.is_terminal
    bar = Progress(console=console, transient=True, disable=not on_terminal)
    with distributed.failing_together(advice), bar:
        total = sum(itertools.starmap(Group.num_tokens, parts))
        row = bar.add_task("", total=total)
        for group, questions in parts:
            name = f"{questions.task.expression} at {questions.length}"
            bar.update(row, description=name)
            if not on_terminal:
                notice(name, style="")

            def advance(documents: int, length: int = questions.length) -> None:
                bar.advance(row, documents * length)

            new = group.ask(questions, advance, spread_score)
            while options.precision and (
                more := group.next_round(questions, new, options.precision)
            ):
                total += group.num_tokens(more)
                bar.update(row, total=total)
                added = group.ask(more, advance, spread_score)
                new = [rows.concatenate(pair) for pair in zip(new, added, strict=True)]
            # Write now, so that an interrupted evaluation keeps these rows.
            for member, member_rows in zip(group.members, new, strict=True):
                assert member.run
                path = member.run.path
                if distributed.is_primary_host():
                    rows.add(targets[path].results_path, member_rows)
                results[path] = rows.concatenate([results[path], member_rows])
    return [(m.run, m.config, results[m.run.path]) for m in members if m.run]


def _find_runs(
    run_paths: Sequence[str | Path], options: Options, copies: Copies | None
) -> list[RunDirectory]:
    # Several paths may lead to the same run.
    runs = list({run.path.resolve(): run for run in find_runs(run_paths)}.values())
    check_variants(options.variants, runs)
    # Report files that cannot be extended before hours of work.
    for run in runs:
        if copies is None:
            check_writable(run.path, "keep the rows elsewhere: --out DIR")
        rows.read_run(run)
    return runs


def check_lengths(config: ExperimentConfig) -> None:
    """Reject lengths of the config's evaluation that do not fit the device.

    Raises:
      ValueError: as `evals.score.check_fits`.
    """
    network = config.model.forward_architecture()
    trained, params = config.data.context_length, transformer.abstract_params(network)
    candidate = Candidate.from_model(params, config.model, trained)
    for length in config.evals.lengths or (trained,):
        check_fits(network, [candidate], config.evals.documents, length)


def _targets(runs: Sequence[RunDirectory], copies: Copies | None) -> dict[Path, RunDirectory]:
    """Return the run directory that gets the rows of each run; the first process makes copies."""
    if copies is None or not distributed.is_primary_host():
        return {run.path: run for run in runs}
    targets = {run.path: copies.copy(run) for run in runs}
    for run in runs:  # --out may hold rows of an earlier run
        rows.read_run(run, targets[run.path].results_path)
    return targets


def evaluate_in_memory(
    configs: Sequence[ExperimentConfig],
    params: Sequence[Params],
    tokenizer: Tokenizer,
    options: Options,
) -> list[dict[str, float]]:
    """Evaluate members of a sweep while they train, without writing rows.

    Args:
      configs: configs of the members, of equal shape.
      params: parameters of the members, as numpy or device arrays.
      tokenizer: tokenizer of all members.
      options: options of the evaluation; `step` is ignored.

    Returns:
      Each member's `evals.kinds.Kind.value` by task, or by `task@length` for several lengths.
    """
    members = []
    for config, member_params in zip(configs, params, strict=True):
        model, member_params = record_learned(config.model, member_params)
        config = dataclasses.replace(config, model=model)
        members.append(Loaded("", config, tokenizer, member_params, 0, (model.rotary,)))
    results = list(ask(members, options))
    several = len({part.length for part, _ in results}) > 1
    values: list[dict[str, float]] = [{} for _ in members]
    for part, part_rows in results:
        name = part.task.expression + (f"@{part.length}" if several else "")
        for value, member_rows in zip(values, part_rows, strict=True):
            value[name] = kinds.kind_of(member_rows).value(member_rows)
    return values


def ask(members: Sequence[Loaded], options: Options) -> Iterator[tuple[Questions, list[Rows]]]:
    """Yield the questions of each task and length, with the rows of each member."""
    group = Group(members, options, lambda text: None)
    for part in group.questions:
        yield part, group.ask(part)


def _load(
    runs: Sequence[RunDirectory], options: Options, notice: Callable[[str], None]
) -> list[Loaded]:
    """Load the checkpoints with the variants that apply to them; skip copies of a run."""
    members: list[Loaded] = []
    originals: dict[str, RunDirectory] = {}
    for run in runs:
        loaded = load(run.path, options.step)
        identity, variants = run_id(run, loaded.step), {}
        original = originals.setdefault(identity, run)
        if original is not run:
            notice(copy_notice(original, run))
            continue
        if damage := metrics_damage(run):
            notice(damage)
        for text in options.variants:
            try:
                variants[chosen_rotary(text, loaded.config)] = None
            except ValueError as error:
                notice(f"{run.name}: skipped: {error}")
        members += [Loaded.from_run(loaded, tuple(variants), identity)] if variants else []
    return members


def _by_shape(members: Iterable[Loaded], options: Options) -> list[list[Loaded]]:
    """Group members that share a program and documents, in order of appearance."""
    groups: dict[Hashable, list[Loaded]] = {}
    for member in members:
        config, data = member.config, member.config.data
        # Seeds of one setting read the same documents, in later rounds too.
        if not any(evals.parse(name).of_training for name in options.tasks or config.evals.tasks):
            data = dataclasses.replace(data, seed=0)
        held_out = member.run.held_out_fingerprints if member.run else ()
        tokenizer = member.tokenizer
        chat = tokenizer, tokenizer.chat_template, tokenizer.stop_ids
        shape = config.model.forward_architecture(), data, held_out, config.evals, chat
        groups.setdefault(shape, []).append(member)
    return list(groups.values())


def to_rows(member: Loaded, rotary: Pattern, questions: Questions, scores: AnswerScores) -> Rows:
    """Return the result rows of one member's answers under one variant."""
    documents = questions.documents
    answers = np.concatenate([document.answers for document in documents])
    if member.run and rotary == member.config.model.rotary:
        rotary = member.run.config_at(member.step).model.rotary  # `learned`, not its numbers

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
