"""Train and measure the runs of a study that have no rows yet.

A card is an ordinary sweep: its runs are in `WORKDIR/CARD/MEMBER,seed=K`, followed by `,steps=N` if
the card has budgets, and stay there. A run that is finished is only measured, so a folder of
`sweep.py` with these names serves as well.
"""

import dataclasses
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from ropewalk.evals import kinds, runner
from ropewalk.experiment.compiled import keep_programs
from ropewalk.experiment.devices import check_platform, device_per_core
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.inherit import inherit
from ropewalk.experiment.loaded import load
from ropewalk.experiment.overrides import Member, Sweep
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import count_tokens, split
from ropewalk.model import transformer
from ropewalk.studies import rows
from ropewalk.studies.card import Card, Measurement
from ropewalk.studies.rows import Answers, Counts, Losses, Row
from ropewalk.training.sweep import check_sweep, train_sweep
from ropewalk.utils.command_line import typed_command
from ropewalk.utils.files import check_writable
from ropewalk.utils.git import current_commit
from ropewalk.utils.messages import counted


class CardRun(NamedTuple):
    """One member of a card with one seed and budget.

    Attributes:
      key: member of the card, seed, and tokens trained on in all stages, as of a row.
      is_last: whether it is the largest budget.
      member: member of the sweep that trains it; its config has what the run inherits from the run
        that it starts from.
    """

    key: tuple[str, int, int]
    is_last: bool
    member: Member


def missing(
    card: Card,
    seed: int,
    card_rows: Sequence[Row],
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> list[CardRun]:
    """Return the runs of a card with one seed that have no row.

    A member and seed with a final row needs no other.

    Args:
      card: the card.
      seed: `seed` and `data.seed` of each run.
      card_rows: rows of the card.
      folder: folder of the runs; None: models of runs that start from others are left out.
      overrides: further changes to all configs.

    Raises:
      ValueError: if an override is wrong or of a field that a member sets, there is no run that a
        member starts from, or a row does not have the config of its run.
    """
    set_by_members = {x.partition("=")[0] for changes in card.members.values() for x in changes}
    for override in overrides:
        path = override.partition("=")[0]
        for name in sorted(set_by_members):
            if f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}."):
                raise ValueError(
                    f"{override}: members of card {card.name} set {name}, and their rows would not "
                    "answer it; leave it out, or write a card of your own"
                )
    by_key = {row.key: row for row in card_rows}
    finished = {(row.member, row.seed) for row in card_rows if row.final}
    runs = []
    for name, member_changes in card.members.items():
        # As on a command line, `seed` decides the rows too.
        changes = f"seed={seed}", *member_changes, *overrides
        for number, budget in enumerate(card.budgets(card.shared())):
            steps = "" if card.tokens is None else f",steps={budget.train.num_steps}"
            directory = RunDirectory((folder or Path()) / f"{name},seed={seed}{steps}")
            try:
                config = inherit(budget, changes, directory if folder else None)
            except ValueError as error:
                raise ValueError(f"card {card.name}, member {name}: {error}") from error
            key = name, seed, count_tokens(config)
            if card.tokens is not None and key[2] != count_tokens(budget):
                raise ValueError(
                    f"card {card.name}, member {name}: trains on {key[2]:,} tokens, not on the "
                    f"card's {count_tokens(budget):,}; give batch size and context to all members"
                )
            if row := by_key.get(key):
                rows.check(row, config)
            elif (name, seed) not in finished:
                is_last = card.tokens is None or number == len(card.shares) - 1
                runs.append(CardRun(key, is_last, Member(directory, overrides, config)))
    return runs


def status(cards: Mapping[str, Card], rows_folder: Path) -> Iterator[str]:
    """Yield what is done of each card.

    Raises:
      ValueError: if a row is damaged, or does not have the config of its run.
    """
    for card in cards.values():
        card_rows = rows.read(rows.file_path(rows_folder, card.name))
        waiting = [run for seed in card.seeds for run in missing(card, seed, card_rows)]
        names = "; ".join(run.member.name for run in waiting[:3])
        names += f"; and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        text = f"missing: {names}" if names else "complete"
        yield f"{card.name}: {counted(len(card_rows), 'rows')}, {text}"


def run_cards(
    cards: Mapping[str, Card], workdir: Path, rows_folder: Path, overrides: Sequence[str] = ()
) -> Iterator[str]:
    """Run what is missing of cards, the first seed of all cards before the second.

    Args:
      cards: by name.
      workdir, rows_folder, overrides: as in `run_card`, which also has the result and the errors.
    """
    check_writable(rows_folder, "use another --rows")
    cards = {name: card for name, card in cards.items() if card.members}
    device_per_core()
    check_platform()
    keep_programs()
    for card in cards.values():  # an error in the last card must not appear hours later
        card_rows = rows.read(rows.file_path(rows_folder, card.name))
        for seed in card.seeds:
            runs = missing(card, seed, card_rows, workdir / card.name, overrides)
            check_sweep(_untrained(card, workdir / card.name, runs))
    for seed in dict.fromkeys(seed for card in cards.values() for seed in card.seeds):
        for card in cards.values():
            if seed in card.seeds:
                yield from run_card(card, seed, workdir, rows_folder, overrides)


def run_card(
    card: Card, seed: int, workdir: Path, rows_folder: Path, overrides: Sequence[str] = ()
) -> Iterator[str]:
    """Train what is missing of a card with one seed, measure it, and append its rows.

    Args:
      card: the card.
      seed: of all its runs.
      workdir: of the study.
      rows_folder: folder of the rows.
      overrides: further changes to all configs, such as `data.path`.

    Yields:
      A line of text for each new row.

    Raises:
      ValueError: for any error of the user.
      KeyboardInterrupt: if a signal stopped the training, which has saved.
    """
    folder = workdir / card.name
    card_rows = rows.read(rows.file_path(rows_folder, card.name))
    runs = missing(card, seed, card_rows, folder, overrides)
    start = time.process_time()  # of all threads
    sweep = _untrained(card, folder, runs)
    command = typed_command()
    if sweep.members and not train_sweep(sweep, command=command):
        raise KeyboardInterrupt
    for run in runs:
        row = _make_row(card, run)
        seconds, start = time.process_time() - start, time.process_time()
        row = dataclasses.replace(row, core_seconds=round(seconds, 1))
        rows.append(rows_folder, [row])
        yield f"{card.name}/{run.member.name}: " + ", ".join(
            f"{item.task} {item.value:.3f}" for item in row.answers
        )


def _untrained(card: Card, folder: Path, runs: Sequence[CardRun]) -> Sweep:
    """Return the sweep of the runs that are not trained yet."""
    members = [run.member for run in runs if not _is_trained(run.member)]
    return Sweep(card.shared(), folder, members)


def _is_trained(member: Member) -> bool:
    directory, _, config = member
    if not directory.is_started():
        return False
    directory.check_resumable(directory.pinned(config))
    return split(config)[-1].end in directory.steps()


def _make_row(card: Card, run: CardRun) -> Row:
    directory, _, config = run.member
    member, seed, tokens = run.key
    if directory.diverged_at:
        raise ValueError(
            f"{directory.path} diverged at step {directory.diverged_at} and cannot be measured; "
            "give the member a lower train.learning_rate"
        )
    metrics = directory.read_metrics()[-1]
    losses = {name: metrics[name] for name in ("loss", "val_loss") if metrics.get(name) is not None}
    return Row(
        card=card.name,
        member=member,
        seed=seed,
        tokens=tokens,
        final="as planned" if run.is_last else "",
        config=rows.without_folders(config),
        answers=tuple(
            answers for item in card.measurements for answers in measure(directory, item)
        ),
        numbers={"losses": losses},
        made_by={
            "commit": current_commit(),
            "jax": jax.__version__,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
            "tokenizer": directory.record["tokenizer"][:12],
        },
        core_seconds=0.0,
    )


def measure(directory: RunDirectory, measurement: Measurement) -> Iterator[Answers]:
    """Measure a run; yield the answers of each task and length."""
    loaded = load(directory.path, step=measurement.step)
    params = transformer.without_heads(loaded.params, measurement.masked_heads)
    variants, identity = (loaded.config.model.rotary,), run_id(directory, loaded.step)
    member = runner.Loaded.from_run(loaded, variants, identity)._replace(params=params)
    options = runner.Options(tasks=measurement.tasks or None, lengths=measurement.lengths or None)
    for questions, (task_rows,) in runner.score_members([member], options):
        is_retrieval = questions.task.kind == "retrieval"
        yield Answers(
            measurement=measurement.name,
            task=questions.task.expression,
            length=questions.length,
            value=float(kinds.kind_of(task_rows).value(task_rows)),
            counts=Counts.from_rows(task_rows) if is_retrieval else None,
            losses=None if is_retrieval else Losses.from_rows(task_rows),
        )
