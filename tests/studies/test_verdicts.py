"""Marks: D_H is exceeded if L50 is significantly above it; a claim is held unless refuted."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from evals.estimate.bins import fine_bin_number
from studies import report, rows
from studies.card import Card, Claim, Measurement, Member
from studies.forecasts import Forecasts
from studies.jobs import make_job
from studies.results import CardResults
from studies.verdicts import judge_bound, judge_claim

LONGEST = 125
SHARED = change(find_config("tiny"), train=dict(schedule="wsd"))


CARD = Card(
    name="card",
    question="?",
    shared=SHARED,
    members=(Member(name="a"), Member(name="b", overrides=("model.rotary.base=7",))),
    tokens=100_000,
    claims=(Claim("L50 of a is 10 tokens.", ("a",), lambda seeds: seeds[0].l50 < 10),),
)


def counts(edge: float, ceiling: float = 1.0) -> rows.Counts:
    """Make counts that are right up to distance `edge` and wrong beyond it."""
    distance = np.arange(1, LONGEST + 1)
    fine, bin_index = np.unique(fine_bin_number(distance), return_inverse=True)
    questions = np.full((64, len(fine)), 2)
    near = np.bincount(bin_index, distance <= edge) / np.bincount(bin_index)
    right = np.zeros_like(questions)
    right[: round(64 * ceiling)] = np.round(2 * near).astype(int)
    return rows.Counts(0.0, 1, LONGEST, fine, questions, right)


def row(edge: float, seed: int = 0, *, ceiling: float = 1.0, **fields) -> rows.Row:
    answers = rows.Answers(
        measurement="whole", task="kv(pairs=8)", length=128, value=0.0, counts=counts(edge, ceiling)
    )
    defaults: dict[str, Any] = dict(card="card", member="a", tokens=1000, final="converged")
    return rows.Row(
        seed=seed, config=SHARED, answers=(answers,), mean_accuracy=0.0,
        ceiling=ceiling, l50=edge, losses={}, core_seconds=1.0, made_by={}, **defaults | fields,
    )  # fmt: skip


def forecasts(l50: float) -> Forecasts:
    beyond = math.isinf(l50)
    return {"card": {"a": {"whole": {"l50": LONGEST if beyond else l50, "beyond": beyond}}}}


def verdict(card_rows: list[rows.Row], bound: float = 32.0) -> str:
    results = CardResults(CARD, card_rows, forecasts(bound))
    return str(judge_bound(results, "a", "whole"))


@pytest.mark.parametrize(
    ("bound", "label"), [(8, "exceeds"), (15.9, "not exceeded"), (21, "not exceeded")]
)
def test_a_member_exceeds_a_bound_significantly_below_its_l50(bound, label):
    assert verdict([row(16)], bound) == f"{label} (seen, 1 seed)"
    assert verdict([row(16, seed) for seed in range(3)], bound) == f"{label} (3 seeds)"


def test_seeds_that_differ_widely_do_not_exceed():
    assert verdict([row(8, 0), row(60, 1), row(16, 2)], 12.0) == "not exceeded (3 seeds)"


def test_a_member_beyond_all_distances_exceeds_a_finite_bound():
    assert verdict([row(LONGEST)], 100.0).startswith("exceeds")
    for edge in (LONGEST, 32):
        assert verdict([row(edge)], math.inf) == "no bound within the distances"


def test_a_verdict_names_its_obstacle():
    assert verdict([]) == "not run"
    assert verdict([row(32, final="")]) == "not finished (1 seed)"
    assert verdict([row(32, ceiling=0.4)]) == "not learned (seen, 1 seed)"
    no_bound = judge_bound(CardResults(CARD, [row(32)], {}), "a", "whole")
    assert str(no_bound) == "no bound within the distances"


def test_a_run_counts_for_every_card_that_has_it():
    """The name of the card, the seed and the budget make no other run."""
    elsewhere = dataclasses.replace(
        row(16, 1),
        card="other",
        member="x",
        config=change(SHARED, name="other", seed=1, data=dict(seed=1), train=dict(num_steps=7)),
    )
    different = dataclasses.replace(elsewhere, config=change(SHARED, train=dict(beta2=0.5)))
    results = CardResults(CARD, [row(8, 0), elsewhere, different], {})
    assert [seed.seed for seed in results.seeds("a")] == [0, 1]
    assert len(results.rows) == 1  # a card's cost is that of its rows


def test_growth_is_by_doubling_of_answers():
    """64 documents have 2 questions in each of their fine bins; L50 is 4, then 16."""
    card_rows = [row(4, tokens=SHARED.data.context_length * 64), row(16, tokens=64 * 4 * 1024)]
    num_answers = 2 * len(counts(1).fine) * 64 * 4 * 1024 / SHARED.data.context_length
    num_doublings = math.log2(64 * 4 * 1024 / (SHARED.data.context_length * 64))
    text = CardResults(CARD, card_rows, {}).trained_on("a")
    assert text == (
        f"{num_answers / 1000:,.0f}k answers; {2 / num_doublings:+.2f} octaves, +0.00 a doubling"
    )


def test_a_masked_model_that_answers_nothing_has_the_shortest_l50():
    """NaN would hide that the masked head gave all answers."""
    masked = Measurement(name="masked", masked_heads=((0, 1),))

    card = dataclasses.replace(
        CARD,
        measurements=(Measurement(), masked),
        claims=(
            Claim(
                "All answers need the masked head.",
                ("a",),
                lambda seeds: math.log2(seeds[0].l50) > 1,
                measurements=("masked",),
            ),
        ),
    )

    def labels(*, ceiling: float) -> tuple[str, str]:
        """Return the labels of claim and bound, by the ceiling of the model with all heads."""
        card_row = row(32, ceiling=ceiling)
        (answers,) = card_row.answers
        nothing = dataclasses.replace(answers, measurement="masked", counts=counts(32, 0.0))
        records = {"a": {"masked": {"l50": 100, "beyond": False}}}
        both = dataclasses.replace(card_row, answers=(answers, nothing))
        results = CardResults(card, [both], {"card": records})
        on_claim = judge_claim(results, card.claims[0])
        return on_claim.label, judge_bound(results, "a", "masked").label

    assert labels(ceiling=1.0) == ("held", "not exceeded")
    assert labels(ceiling=0.4) == ("not learned", "not learned")


def test_the_last_budget_of_finished_seeds_counts():
    exceeds = "exceeds (seen, 1 seed)"
    assert verdict([row(32, tokens=2000), row(4, final="")], 16.0) == exceeds
    assert verdict([row(32, 0), row(4, 1, final=""), row(4, 2, final="")], 16.0) == exceeds


def test_budgets_have_the_geometric_mean_of_their_seeds():
    card_rows = [row(8, 0, tokens=500), row(32, 1, tokens=500), row(16, 0), row(math.inf, 1)]
    assert CardResults(CARD, card_rows, {}).budgets("a") == "16 / inf"


def test_rows_of_another_card_count_up_to_the_largest_budget():
    """Else one member of a card would be compared after more training than the others."""
    rows_of_other = [
        row(edge, card="other", tokens=tokens) for edge, tokens in ((8, 200_192), (32, 400_384))
    ]
    assert CardResults(CARD, rows_of_other, {}).last_rows["a"][0].l50 == 8
    assert CardResults(CARD, [row(64, tokens=400_384)], {}).last_rows["a"][0].l50 == 64


def test_a_claim_is_judged_by_the_members_it_reads():
    def claimed(*card_rows: rows.Row) -> str:
        return str(judge_claim(CardResults(CARD, card_rows, {}), CARD.claims[0]))

    other = dataclasses.replace(row(32), member="b", config=CARD.configs()["b"])
    assert claimed() == claimed(other) == "not run"
    assert claimed(row(32), other) == "held (seen, 1 seed)"
    assert claimed(row(4), other) == "refuted (seen, 1 seed)"
    assert claimed(row(4, final="not converged")) == "refuted (seen, 1 seed)"


def test_a_claim_reads_each_seeds_own_result():
    results = CardResults(CARD, [row(8, 0), row(LONGEST, 1)], {})
    eight, all_ = results.seeds("a", task="kv")
    assert (eight.seed, all_.seed) == (0, 1)
    assert eight.l50 == pytest.approx(8, rel=0.1) and all_.l50 == math.inf
    assert (eight.worst, all_.worst) == (0, 1)
    assert eight.longest == LONGEST
    assert results.seeds("b") == []


def test_a_report_needs_only_the_rows(tmp_path):
    (tmp_path / "__init__.py").write_text('"""Which L50 is ten tokens?"""\n')
    (tmp_path / "mine.py").write_text(
        "from configs import find_config\n"
        "from configs.changes import change\n"
        "from studies.card import Card, Claim, Member\n"
        "shared = change(find_config('tiny'), train=dict(schedule='wsd'))\n"
        "claim = Claim('10 tokens.', ('a',), lambda seeds: seeds[0].l50 < 10)\n"
        "members = (Member(name='a'), Member(name='b', overrides=('model.rotary.base=7',)))\n"
        "cards = [Card(name='card', question='Does it?', shared=shared, members=members,"
        " tokens=100_000, claims=(claim,))]\n"
    )
    rows.write(tmp_path / "rows", row(8, tokens=500, final=""))
    rows.write(tmp_path / "rows", row(16, inv_freq=(((0.3, 0.1, 0.2),),)))
    (tmp_path / "forecasts.json").write_text(json.dumps(forecasts(20.0)))
    out = tmp_path / "report" / "page.html"
    lines = report.write(make_job(f"{tmp_path}/"), out)
    line, start, frequencies = (line for line in lines if line.startswith("  member a"))
    assert "D_H 20, as a bound not exceeded (seen, 1 seed), L50 [95% CI] 16" in line
    assert "budgets 8 / 16, " in line
    # `tiny` has 8 pairs and base 1e4: a pair is slower than the one before by 10^(1/2).
    assert start.endswith(
        "start, slowest eight 0.021, ratio 3162.28, near multiples 0 of 5, "
        "all 0.000 0.001 0.003 0.010 0.032 0.100 0.316 1.000"
    )
    assert frequencies.endswith(
        "seed 0, slowest eight 0.200, ratio 3.00, near multiples 1 of 3, all 0.100 0.200 0.300"
    )
    page = out.read_text()
    for text in (
        "Which L50 is ten tokens?",
        "D_H as a bound: 1 not exceeded. Claims: 1 held.",
        "10 tokens.",
        "held (seen, 1 seed)",
    ):
        assert text in page, text
    assert {path.name for path in out.parent.glob("*.png")} == {"forecasts.png", "curves_card.png"}
