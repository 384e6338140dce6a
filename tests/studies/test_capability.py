"""The capability study: its committed rows have the configs of its cards, which are as they say."""

import subprocess

import pytest

from ropewalk.experiment.overrides import Member, Sweep, apply
from ropewalk.experiment.run import RunDirectory
from ropewalk.studies import folder, load_cards, names, rows, run
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
