"""Missing work follows from the rows alone; a run without its forecast is refused."""

import math

import pytest

from studies import forecasts, rows, schedule
from studies.jobs import Progress, Run, list_items, make_job
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


def row(run: Run, level: int, final: str = "") -> Row:
    return Row(
        card=run.card.name, member=run.member, seed=run.seed, tokens=run.tokens(level),
        final=final, config=run.budgets[level], answers=(), l50=math.inf, mean_accuracy=1.0,
        ceiling=1.0, losses={}, made_by={"estimator": 2}, core_seconds=10.0,
    )  # fmt: skip


def test_items_are_seed_by_seed_and_join_runs_of_one_shape_and_seed(job):
    apart = [item.runs[0].path for item in list_items(job, apart=True)]
    members = "bases/ten", "bases/b1e4", "bases/wide", "one/ten"
    assert apart == [f"{member},seed={seed}" for seed in (0, 1) for member in members]
    together = [str(item) for item in list_items(job, apart=False)]
    assert together[:3] == ["bases/ten,seed=0+bases/b1e4,seed=0", "bases/wide,seed=0", apart[3]]
    assert all(run.budgets[0].data.seed == run.seed for run in Progress(job).runs)


def test_progress_follows_from_the_rows_on_disk(job):
    """A missing row is made again, whatever rows come after it; a row of another run counts."""
    first, second, *_ = Progress(job).runs
    rows.write(job.rows, row(first, 0))
    rows.write(job.rows, row(first, 1, "converged"))
    rows.write(job.rows, row(second, 0))
    progress = Progress(job).check_rows()
    assert progress.is_done(first) and not progress.is_done(second)
    assert not progress.is_done(list_items(job, apart=False)[0])
    assert len(progress.rows_of(second)) == 1
    rows.write(job.rows, row(second, 1))  # by another process
    assert len(progress.rows_of(second)) == 2
    (job.rows / first.row_name(0)).unlink()
    assert Progress(job).check_rows().rows_of(first) == []


def test_a_card_needs_a_forecast_of_its_own_models(study, tmp_path):
    job = make_job(study, workdir=tmp_path / "work")
    with pytest.raises(ValueError, match="card bases, member ten has no forecast"):
        schedule.run(job)
    runs = Progress(job).runs
    lines = list(forecasts.write(study, [runs[0].card, runs[-1].card]))
    assert len(lines) == 4 and lines[0].startswith("bases ten: whole ")
    schedule.check(job)
    records = forecasts.read_forecasts(study)["bases"]
    # 64 tokens have room for 16 pairs.
    assert records["ten"]["whole"]["num_others"] == 15 and records["ten"]["whole"]["longest"] == 61
    assert records["ten"]["whole"]["l50"] < records["b1e4"]["whole"]["l50"] == 61

    (tmp_path / "study" / "cards.py").write_text(CARDS.replace("base=10", "base=11"))
    with pytest.raises(ValueError, match="member ten has a forecast of another model"):
        schedule.run(job)
