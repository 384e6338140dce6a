"""The capability study: its committed rows have the configs of its cards, which are as they say."""

import pytest

from ropewalk.studies import load_cards, run
from ropewalk.theory.decay import first_violation, quarter_period

CARDS = load_cards("capability")


@pytest.mark.slow
def test_committed_rows_have_the_configs_of_their_cards(committed):
    """A changed card would give claims about models that were never trained."""
    for name, card in CARDS.items():
        card_rows = [row for row in committed if row.card == name]
        for seed in {row.seed for row in card_rows}:
            run.missing(card, seed, card_rows)  # checks the config of each row


def test_five_vectors_share_a_quarter_period_but_no_theory_length():
    """C2 compares vectors that only the theory length tells apart."""
    configs = CARDS["C2"].configs()
    vectors = [configs[name].model.position_table(128).inv_freq[0, 0] for name in "BAEDC"]
    assert [quarter_period(vector) for vector in vectors] == pytest.approx([14.617] * 5, abs=1e-3)
    assert [first_violation(vector) for vector in vectors] == [3, 5, 3, 15, 15]
