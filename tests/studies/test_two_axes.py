"""The study of recall and order, on rows whose accuracies are known."""

import numpy as np
import pytest
from scipy import stats

from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.studies import load_cards
from ropewalk.studies.report import judge
from ropewalk.studies.rows import Answers, Counts, Row
from ropewalk.studies.two_axes import measures
from tests.studies.test_rows import row

(CARD,) = load_cards("two_axes").values()
BASES = 10, 30, 100, 300, 1e3, 1e4, 1e5, 1e6


def make_rows(far: dict[str, float], seeds=(0, 1, 2)) -> list[Row]:
    """Rows with these accuracies at distances 64 to 80 tokens, and .9 at 9, of 50 documents."""
    fine = fine_bin_number(np.array([9, 70]))
    asked = np.full((50, 2), 20)
    made = []
    for member, accuracy in far.items():
        right = np.broadcast_to(np.rint(np.array([0.9, accuracy]) * 20).astype(int), (50, 2))
        counts = Counts(0.5, 9, 70, fine, asked, right)
        answers = Answers(measurement="whole", task="order", length=128, value=0, counts=counts)
        made += [
            row(card="two_axes", member=member, seed=seed, answers=(answers,)) for seed in seeds
        ]
    return made


def marks(accuracies, **options):
    far = dict(zip(CARD.members, accuracies, strict=True))
    made = make_rows(far, **options)
    return {claim.text[:2]: judge(claim, CARD, made)[0] for claim in CARD.claims}


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [  # by the separation, the step, recall alone, the base alone; a member learns nothing
        ((0.5, 0.7, 0.9, 0.85, 0.8, 0.75, 0.65, 0.6), ("held, by rivals too",) * 2 + ("held",) * 2),
        ((0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55),
         ("refuted", "held, by rivals too", "refuted", "refuted")),
        ((0.5, 0.7, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9),
         ("held, by rivals too", "refuted", "refuted", "refuted")),
        ((0.5,) * 8, ("nothing to measure",) * 4),
    ],
)  # fmt: skip
def test_marks_of_what_each_theory_says(accuracies, expected):
    found = marks((*accuracies, 0.5))
    assert tuple(found[f"s{number}"] for number in range(1, 5)) == expected


def test_numbers_of_a_study():
    """Accuracy is that of all answers, .9 and .7; a difference is that at distances from 32 on."""
    made = make_rows({"base=100": 0.7, "base=10": 0.5, "base=1e6": 0.6, "nope": 0.55})
    assert measures.order_accuracy("nope")(CARD, made).value == pytest.approx((0.9 + 0.55) / 2)
    difference = measures.order_difference("base=100", "base=10", "base=1e6")(CARD, made)
    assert difference[:3] == pytest.approx([0.1] * 3)
    assert (difference.n, difference.unit) == (3, "seeds")
    some = measures.order_difference("base=100", "base=10")(CARD, made[:4])
    assert some.value == pytest.approx(0.2) and some.high == np.inf  # a seed is missing
    assert measures.rank_correlation()(CARD, made) is None


def test_the_rank_correlation_is_that_of_scipy():
    values = (0.55, 0.75, 0.85, 0.95, 0.7, 0.8, 0.65, 0.6)
    made = make_rows(dict(zip(CARD.members, values, strict=False)))
    separations = [0.0019, 0.0467, 0.0702, 0.0676, 0.0581, 0.0487, 0.0402, 0.0350]
    expected = stats.spearmanr(values, separations).statistic
    assert measures.rank_correlation()(CARD, made).value == pytest.approx(expected)
    assert [round(measures.separation(base), 4) for base in BASES] == separations


def test_the_table_and_the_figure(tmp_path):
    far = dict.fromkeys(CARD.members, 0.75)
    (_, _, table), (_, _, drawing) = measures.sections([CARD], make_rows(far))
    assert table.lines[2][1][:5] == ["base=100", "46", "> 124", "1.91", "0.0702"]
    drawing.draw().savefig(tmp_path / "figure.svg")
