"""Evaluation of run directories; members of equal shape share one program."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress

from ropewalk import evals
from ropewalk.data.task import Document, Task
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import kinds, rows
from ropewalk.evals.options import Options
from ropewalk.evals.rows import Rows
from ropewalk.evals.score import AnswerScores, Candidate, check_fits, score
from ropewalk.evals.spread import spread_score
from ropewalk.experiment import distributed
from ropewalk.experiment.config import ExperimentConfig, chosen_rotary
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.loaded import LoadedRun, load_directory
from ropewalk.experiment.run import RunDirectory, find_runs, newest_steps
from ropewalk.model import rotary as rotary_lib
from ropewalk.model import transformer
from ropewalk.model.rotary import Pattern
from ropewalk.model.transformer import Params
from ropewalk.utils.files import check_writable
from ropewalk.utils.messages import counted, print_note

Evaluated = list[tuple[RunDirectory, ExperimentConfig, Rows]]


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

    def __str__(self) -> str:
        return f"{self.task.expression} at {self.length}"

    def digest(self) -> str:
        """Return a digest of everything that the scores of a model depend on."""
        sha256 = hashlib.sha256()
        for d in self.documents:
            arrays = d.tokens, d.answers, d.segment_ids, d.number, d.first_position
            sha256.update(b"".join(np.asarray(x).tobytes() for x in arrays if x is not None))
        return sha256.hexdigest()


class Group:
    """Members that read the same documents in one program.

    Attributes:
      members: members of one shape.
      owners: member and variant of each candidate.
      questions: documents that all members read.
      skipped: reason why a task cannot be scored at a length, by both as `str(questions)`.
      notes: lines about `questions`.
    """

    def __init__(self, members: Sequence[Loaded], options: Options):
        self.members = members
        self.owners = [(member, rotary) for member in members for rotary in member.variants]
        self._config = members[0].config.model.forward_architecture()
        self._candidates = [member.candidate(rotary) for member, rotary in self.owners]
        self.questions: list[Questions] = []
        self.skipped: dict[str, str] = {}
        self.notes: list[str] = []
        evaluation, trained_length = members[0].config.evals, members[0].config.data.context_length
        names = options.tasks or evaluation.tasks
        tasks = evals.parse_all(names)
        lengths = dict.fromkeys(options.lengths or evaluation.lengths or (trained_length,))
        for task, length in itertools.product(tasks, lengths):
            note = _note_untrained(task, members[0])
            try:
                if note and not options.tasks:
                    raise ValueError(note)
                questions = self._make_questions(task, length, options.documents)
            except ValueError as error:
                self.skipped[str(Questions(task, length, ()))] = str(error)
            else:
                self.questions.append(questions)
                self.notes += filter(None, [note, _describe_merged(questions)])

    def _make_questions(self, task: Task, length: int, count: int | None) -> Questions:
        """Return `count` documents, or the default number.

        Raises:
          ValueError: if they do not exist, or do not fit the length or the memory.
        """
        member = self.members[0]
        context = evals.task_context(member.config, member.tokenizer, length, member.run)
        count = count or task.num_documents(context, member.config.evals.documents)
        documents = task.documents(context, range(count))
        if not documents:
            raise ValueError(f"{task.expression} has no documents at length {length}")
        check_fits(self._config, self._candidates, len(documents), length)
        return Questions(task, length, documents)

    def num_tokens(self, part: Questions) -> int:
        """Return the tokens of the forward passes of all candidates, without padding rows."""
        return len(self.owners) * len(part.documents) * part.length

    def score(
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


def _describe_merged(part: Questions) -> str:
    """Count the documents in which ids of answers hold other text too; see `Document.merged`."""
    documents = part.documents
    merged = {d.number for d in documents if d.merged is not None and d.merged.any()}
    share = f"{len(merged)} of {counted(len({d.number for d in documents}), 'documents')}"
    line = f"{part}: the tokenizer joins text beside the answer to it in {share}; the joint ids "
    return line + "count as the answer's" if merged else ""


class Plan(NamedTuple):
    """An evaluation of loaded runs, checked before anything is scored.

    Attributes:
      members: runs, in the order of the results.
      groups: members of equal shape, with their questions.
      notices: lines about runs and questions.
    """

    members: Sequence[Loaded]
    groups: Sequence[Group]
    notices: Sequence[str]

    @property
    def parts(self) -> list[tuple[Group, Questions]]:
        """Questions of all groups, in the order in which they are scored."""
        return [(group, part) for group in self.groups for part in group.questions]

    @property
    def skipped(self) -> list[str]:
        """Reasons why tasks or lengths are not scored, each once."""
        return list(dict.fromkeys(x for group in self.groups for x in group.skipped.values()))

    def describe(self) -> list[str]:
        """Return lines that say what is scored, and what is not and why."""
        count = sum(len(group.owners) * len(part.documents) for group, part in self.parts)
        scored = dict.fromkeys(str(part) for _, part in self.parts)
        return [
            *self.notices,
            *(f"skipped: {reason}" for reason in self.skipped),
            f"scoring {counted(count, 'documents')}: {', '.join(scored)}",
        ]


def make_plan(runs: Sequence[RunDirectory], options: Options) -> Plan:
    """Load runs and make their questions; all processes must call this together.

    Raises:
      ValueError: in all processes, if nothing can be scored, a run cannot be read or written, or
        processes have other checkpoints or questions.
    """
    distributed.check_alike(options)
    with distributed.refusing_together():
        # Several paths may lead to the same run.
        runs = list({run.path.resolve(): run for run in runs}.values())
        for run in runs:  # before hours of work
            check_writable(run.path, "evaluate a copy of the run (cp -r)")
            rows.read_run(run)
        notices: list[str] = []
        members = _load(runs, options, notices.append)
        groups = [Group(alike, options) for alike in _by_shape(members, options)]
        plan = Plan(members, groups, notices + [note for group in groups for note in group.notes])
        if not plan.parts:
            raise ValueError("; ".join(plan.skipped or notices))
    if jax.process_count() > 1:  # passes of other questions would wait for each other for ever
        names = [sorted([*map(str, group.questions), *group.skipped]) for group in groups]
        known = [(member.run_id, member.step) for member in members], names
        distributed.check_equal({"checkpoints": known}, "wait until all hosts see the same files")
        for group in groups:
            digests = dict.fromkeys(group.skipped) | {str(q): q.digest() for q in group.questions}
            questions = {f"questions of {name}": digests[name] for name in sorted(digests)}
            remedy = "give all hosts the same texts, and memory for the same lengths"
            distributed.check_equal(questions, remedy)
    return plan


def evaluate(
    run_paths: Sequence[str | Path],
    options: Options | None = None,
    *,
    console: Console | None = None,
) -> Evaluated:
    """Evaluate runs and write their result rows; print what is left out and why.

    Args:
      run_paths: run directories and sweep directories.
      options: options of the evaluation.
      console: console for progress and notices; None: no output.

    Returns:
      Each run, its config at the evaluated step, and its new rows.

    Raises:
      ValueError: as `make_plan`, or for a directory that is not a run.
    """
    console = console or Console(quiet=True)
    plan = make_plan(find_runs(run_paths), options or Options())
    print_lines(console, plan.describe())
    return score_plan(plan, console)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def score_plan(plan: Plan, console: Console) -> Evaluated:
    """Score on all devices of all processes; the first process writes the rows.

    Args:
      plan: result of `make_plan`.
      console: console for progress.

    Returns:
      As `evaluate`.
    """
    results = {m.run.path: rows.columns([]) for m in plan.members if m.run}
    advice = "Start all processes again; the rows scored so far are kept."
    on_terminal = console.is_terminal
    bar = Progress(console=console, transient=True, disable=not on_terminal)
    with distributed.failing_together(advice), bar:
        total = sum(itertools.starmap(Group.num_tokens, plan.parts))
        row = bar.add_task("", total=total)
        for group, questions in plan.parts:
            bar.update(row, description=str(questions))
            if not on_terminal:
                print_lines(console, [str(questions)])

            def advance(documents: int, length: int = questions.length) -> None:
                bar.advance(row, documents * length)

            new = group.score(questions, advance, spread_score)
            # Write now, so that an interrupted evaluation keeps these rows.
            for member, member_rows in zip(group.members, new, strict=True):
                assert member.run
                if distributed.is_primary_host():
                    rows.add(member.run.results_path, member_rows)
                path = member.run.path
                results[path] = rows.concatenate([results[path], member_rows])
    return [(m.run, m.config, results[m.run.path]) for m in plan.members if m.run]


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
        members.append(Loaded("", config, tokenizer, member_params, 0, (config.model.rotary,)))
    group = Group(members, options)
    for reason in group.skipped.values():
        print_note(None, f"train.eval_tasks: skipped: {reason}")
    several = len({part.length for part in group.questions}) > 1
    values: list[dict[str, float]] = [{} for _ in members]
    for part in group.questions:
        name = part.task.expression + (f"@{part.length}" if several else "")
        for value, member_rows in zip(values, group.score(part), strict=True):
            value[name] = kinds.kind_of(member_rows).value(member_rows)
    return values


def score_members(
    members: Sequence[Loaded], options: Options
) -> Iterator[tuple[Questions, list[Rows]]]:
    """Yield the questions of each task and length, with the rows of each member.

    Raises:
      ValueError: for a task of `options` that cannot be scored; others are left out.
    """
    group = Group(members, options)
    if options.tasks and group.skipped:
        raise ValueError("; ".join(group.skipped.values()))
    for part in group.questions:
        yield part, group.score(part)


def _load(
    runs: Sequence[RunDirectory], options: Options, notice: Callable[[str], None]
) -> list[Loaded]:
    """Load the checkpoints with the variants that apply to them."""
    members: list[Loaded] = []
    newest = newest_steps(runs, notice) if options.step is None else {}
    for run in runs:
        loaded, variants = load_directory(run, newest.get(run, options.step)), {}
        for text in options.variants:
            try:
                variants[chosen_rotary(text, loaded.config)] = None
            except ValueError as error:
                notice(f"{run.name}: skipped: {error}")
        if variants:
            identity = run_id(run, loaded.step)
            members.append(Loaded.from_run(loaded, tuple(variants), identity))
    return members


def _by_shape(members: Iterable[Loaded], options: Options) -> list[list[Loaded]]:
    """Group members that share a program and documents, in order of appearance."""
    groups: dict[Hashable, list[Loaded]] = {}
    for member in members:
        config, data, tokenizer = member.config, member.config.data, member.tokenizer
        # Seeds of one setting read the same documents.
        tasks = evals.parse_all(options.tasks or config.evals.tasks)
        if not any(task.of_training for task in tasks):
            data = dataclasses.replace(data, seed=0)
        held_out = member.run.held_out_fingerprints if member.run else ()
        shape = config.model.forward_architecture(), data, held_out, config.evals, tokenizer
        # Tokenizers of one file may have different templates.
        shape += tokenizer.chat_template, tokenizer.stop_ids
        groups.setdefault(shape, []).append(member)
    return list(groups.values())


def to_rows(member: Loaded, rotary: Pattern, questions: Questions, scores: AnswerScores) -> Rows:
    """Return the result rows of one member's answers under one variant."""
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
