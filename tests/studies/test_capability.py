"""The capability study: its committed rows have the configs of its cards, which are as they say."""

import math
import subprocess
from types import SimpleNamespace

import pytest

from ropewalk.experiment.overrides import Member, Sweep, apply
from ropewalk.experiment.run import RunDirectory
from ropewalk.studies import folder, load_cards, names, rows, run
from ropewalk.studies.capability import measures
from ropewalk.training.sweep import check_sweep

CARDS = load_cards("capability")


@pytest.mark.slow
def test_committed_rows_have_the_configs_of_their_cards(committed):
    """A changed card would give claims about models that were never trained."""
    for name, card in CARDS.items():
        card_rows = [row for row in committed if row.card == name]
        for seed in {row.seed for row in card_rows}:
            run.missing(card, seed, card_rows)  # checks the config of each row


def test_every_row_names_a_commit_of_this_history(committed):
    """A commit that is rebased before it is pushed is lost, and with it the code of its rows."""
    git = ["git", "-C", str(folder("capability")), "rev-list", "HEAD"]
    history = subprocess.run(git, capture_output=True, text=True, check=False).stdout
    if history.count("\n") < 100:
        pytest.skip("needs the repository with its history")
    every_row = [*committed, *rows.read_all(folder("language_model") / "rows")]
    commits = {commit[:12] for commit in history.split()}
    assert {row.made_by["commit"] for row in every_row} <= commits


@pytest.mark.slow
@pytest.mark.parametrize("study", names())
def test_every_member_can_be_trained(study, tmp_path):
    """Readers of a card repeat its runs; what training refuses, no config refuses."""
    (tmp_path / "text.jsonl").write_text('{"text": "some text"}\n')
    path = [f"data.path={tmp_path}"] if study == "language_model" else []
    for name, card in load_cards(study).items():
        members = [
            Member(RunDirectory(tmp_path / name / member), (), apply(config, path))
            for member, config in card.configs().items()
        ]
        if members:
            check_sweep(Sweep(card.shared(), tmp_path / name, members))


def test_the_multiple_is_that_of_the_plain_models_by_hand(committed, monkeypatch):
    """L50 of base 10 over 5 tokens, and of base 30 over 17, at the first budget of a million."""
    l50 = {10: (20.0, 40.0), 30: (51.0, 68.0)}  # after fewer answers, after more
    plain = [r for r in committed if r.card == "C1" and r.member.endswith("heads=1")]
    several = [r for r in committed if r.card == "C11" and r.member != "1x64"]
    frozen = [r for r in committed if r.card == "C18"]

    def estimate(some):
        if not some:
            return None
        base = some[0].config.model.rotary.base
        late = measures.count_answers(some[0]) > 1e6
        return SimpleNamespace(verdict="MEASURED", l50=l50[base][late])

    monkeypatch.setattr(measures, "_estimate", estimate)
    every_row = plain + several + frozen
    early, late = (
        measures.multiple(low=low, high=high)(None, every_row)
        for low, high in ((100, 200), (1000, math.inf))
    )
    assert (early.value, early.n) == (pytest.approx(math.sqrt(4 * 3)), 2)
    assert (late.value, late.unit) == (pytest.approx(math.sqrt(8 * 4)), "models")
    growth = measures.growth(early=[100, 200], late=[1000, math.inf])(None, every_row)
    assert growth.value == pytest.approx((1 + math.log2(4 / 3)) / 2)
    assert measures.multiple(low=1, high=2)(None, every_row) is None
