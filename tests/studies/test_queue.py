"""What is missing, by rows alone; and what is refused before anything is computed."""

import dataclasses
import math

import pytest

from data.locks import try_lock
from studies import driver, forecasts, rows
from studies.piece import Run
from studies.queue import Queue, make_job
from studies.rows import Row

CARDS = """
from configs import find_config
from configs.changes import change
from studies.card import Card, Member

SHARED = change(
    find_config("tiny"),
    data=dict(source="retrieval", retrieval_tasks=("kv",)),
    train=dict(schedule="wsd"),
    evals=dict(tasks=("kv",)),
)
ten, wide = (
    Member(name="ten", overrides=("model.rotary.base=10",)),
    Member(name="wide", overrides=("model.num_heads=4",)),
)
cards = [
    Card(
        name="bases",
        question="?",
        shared=SHARED,
        tokens=80 * 8 * 64,
        members=(ten, Member(name="b1e4"), wide),
    ),
    Card(name="one", question="?", shared=SHARED, members=(ten,)),
]
"""


@pytest.fixture
def study(tmp_path) -> str:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "cards.py").write_text(CARDS)
    return str(tmp_path / "study")


@pytest.fixture
def job(study, tmp_path):
    return make_job(study, seeds=(0, 1), workdir=tmp_path / "work")


def row(run: Run, level: int, final: str = "", **changes) -> Row:
    return Row(
        card=run.card.name,
        member=run.member,
        seed=run.seed,
        tokens=run.tokens(level),
        final=final,
        config=changes.get("config", run.levels[level]),
        answers=(),
        l50=math.inf,
        mean_accuracy=1.0,
        ceiling=1.0,
        losses={},
        made_by={"estimator": changes.get("estimator", 2)},
        core_seconds=10.0,
    )


def pieces(queue: Queue, together: bool = False) -> list[tuple]:
    return [
        (each.runs[0].seed, each.runs[0].card.name, each.level, [run.member for run in each.runs])
        for each in queue.pending(together=together)
    ]


def test_seeds_come_one_after_the_other_and_in_a_card_the_least_trained_first(job):
    queue = Queue(job)
    first, second, *_ = queue.runs
    rows.write(job.rows, row(first, 0))
    rows.write(job.rows, row(first, 1, "converged"))
    rows.write(job.rows, row(second, 0))
    assert pieces(Queue(job)) == [
        (0, "bases", 0, ["wide"]),
        (0, "bases", 1, ["b1e4"]),
        (0, "one", 0, ["ten"]),
        *((1, "bases", 0, [member]) for member in ("ten", "b1e4", "wide")),
        (1, "one", 0, ["ten"]),
    ]
    # A row that is missing is made again, whatever lies after it.
    (job.rows / rows.file_name("bases", "ten", 0, first.tokens(0))).unlink()
    assert pieces(Queue(job))[0] == (0, "bases", 0, ["ten"])


def test_runs_of_one_shape_and_seed_share_a_program_where_that_is_wanted(job):
    queue = Queue(job)
    assert pieces(queue, together=True) == [
        (seed, card, 0, members)
        for seed in (0, 1)
        for card, members in (("bases", ["ten", "b1e4"]), ("bases", ["wide"]), ("one", ["ten"]))
    ]
    assert all(run.levels[0].data.seed == run.seed == run.levels[0].seed for run in queue.runs)


def test_a_piece_is_held_by_one_and_its_row_ends_it(job):
    mine, theirs = Queue(job), Queue(job)
    with mine.claim(together=False) as first, theirs.claim(together=False) as second:
        assert first and second
        assert [run.member for run in first.runs + second.runs] == ["ten", "b1e4"]
        rows.write(job.rows, row(first.runs[0], 0))
    with mine.claim(together=False) as next_piece:
        assert next_piece and (next_piece.runs[0].member, next_piece.level) == ("b1e4", 0)


def test_a_card_is_not_run_before_its_forecast_nor_after_one_of_another_model(study, tmp_path):
    job = make_job(study, workdir=tmp_path / "work")
    with pytest.raises(ValueError, match="card bases, member ten has no forecast; first: python"):
        driver.run(job)
    cards = Queue(job).runs[0].card, Queue(job).runs[-1].card
    lines = list(forecasts.write(study, {card.name: card for card in cards}))
    assert len(lines) == 4 and lines[0].startswith("bases ten: whole ")
    forecasts.check(job, Queue(job))
    made = forecasts.read(study)["bases"]
    # 64 tokens have room for 16 pairs.
    assert made["ten"]["whole"]["num_others"] == 15 and made["ten"]["whole"]["longest"] == 61
    assert made["ten"]["whole"]["l50"] < made["b1e4"]["whole"]["l50"] == 61

    text = CARDS.replace("base=10", "base=11")
    (tmp_path / "study" / "cards.py").write_text(text)
    with pytest.raises(ValueError, match="member ten has a forecast of another model"):
        driver.run(job)


def test_a_study_is_run_once_at_a_time(job, study):
    job = job._replace(cards=("one",))  # which has no budget, so no forecast
    job.workdir.mkdir()
    with (
        try_lock(job.workdir / "lock") as held,
        pytest.raises(ValueError, match="is being worked on by another run"),
    ):
        assert held
        driver.run(job)


def test_what_is_left_follows_from_what_was_measured(job):
    queue = Queue(job)
    assert driver.left(queue).startswith("0 of 8 runs done, about ")
    before = driver.seconds_left(queue)
    # Twice as slow as expected: so is the rest.
    run = queue.runs[0]
    expected = driver.expected_seconds(run, 0)
    rows.write(job.rows, dataclasses.replace(row(run, 0), core_seconds=2 * expected))
    after = driver.seconds_left(Queue(job))
    assert after == pytest.approx(2 * (before - expected))
    assert "  bases: 0 of 6 runs done, 1 begun" in driver.status(Queue(job)).splitlines()
