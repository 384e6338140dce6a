"""A forecast is held within half an octave, a claim where nothing refutes it, and neither of what
was not run, not finished, not learned or still moving."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from studies.marks import CardResults
from studies.queue import make_job

from configs import find_config
from configs.changes import change
from evals.estimate.bins import fine_bin_number
from studies import report, rows
from studies.card import Card, Claim, Measurement, Member, Results
from studies.forecasts import Forecasts

LONGEST = 125
SHARED = change(find_config("tiny"), train=dict(schedule="wsd"))


def none_below_ten(results: Results) -> bool | None:
    found = results.of("a")
    return any(one.l50 < 10 for one in found) if found else None


CARD = Card(
    name="card",
    question="?",
    shared=SHARED,
    members=(Member(name="a"), Member(name="b")),
    tokens=1000,
    claims=(Claim(text="a sees 10 tokens.", refuted=none_below_ten),),
)


def counts(edge: float, ceiling: float = 1.0) -> rows.Counts:
    """Right up to an edge and wrong beyond it, to the last distance."""
    distance = np.arange(1, LONGEST + 1)
    fine, place = np.unique(fine_bin_number(distance), return_inverse=True)
    asked = np.full((64, len(fine)), 2)
    near = np.bincount(place, distance <= edge) / np.bincount(place)
    right = np.zeros_like(asked)
    right[: round(64 * ceiling)] = np.round(2 * near).astype(int)
    return rows.Counts(chance=0.0, shortest=1, longest=LONGEST, fine=fine, asked=asked, right=right)


def row(edge: float, seed: int = 0, *, ceiling: float = 1.0, **fields) -> rows.Row:
    answers = rows.Answers(
        measurement="whole", task="kv(pairs=8)", length=128, value=0.0, counts=counts(edge, ceiling)
    )
    given: dict[str, Any] = dict(member="a", tokens=1000, final="converged", made_by={})
    return rows.Row(
        card="card",
        seed=seed,
        config=SHARED,
        answers=(answers,),
        mean_accuracy=0.0,
        ceiling=ceiling,
        l50=edge,
        losses={},
        core_seconds=1.0,
        **given | fields,
    )


def forecasts(l50: float) -> Forecasts:
    beyond = math.isinf(l50)
    return {"card": {"a": {"whole": {"l50": LONGEST if beyond else l50, "beyond": beyond}}}}


def mark(found: list[rows.Row], forecast: float = 32.0) -> str:
    return str(CardResults(CARD, found, forecasts(forecast)).forecast_mark("a", "whole"))


@pytest.mark.parametrize(
    ("forecast", "word"), [(16 / 1.45, "failed"), (16 / 1.3, "held"), (21, "held"), (25, "failed")]
)
def test_half_an_octave_decides(forecast, word):
    assert mark([row(16)], forecast) == f"{word} (seen, 1 seed)"


def test_the_mean_over_seeds_of_the_logarithm_decides():
    assert mark([row(8, 0), row(32, 1), row(16, 2)], 16.0) == "held (3 seeds)"
    assert mark([row(8, 0), row(8, 1), row(32, 2)], 20.0) == "failed (3 seeds)"


def test_beyond_all_distances_counts_as_the_longest():
    assert mark([row(LONGEST)], math.inf).startswith("held")
    assert mark([row(LONGEST)], 100.0).startswith("held")
    assert mark([row(100)], math.inf).startswith("held")
    assert mark([row(LONGEST)], 32.0).startswith("failed")
    assert mark([row(32)], math.inf).startswith("failed")


def test_what_cannot_be_marked_says_why():
    assert mark([]) == "not run"
    assert mark([row(32, final="")]) == "not finished (1 seed)"
    assert mark([row(32, ceiling=0.4)]) == "not learned (seen, 1 seed)"
    assert mark([row(32, 0), row(32, 1, final="not converged")]) == "not converged (seen, 2 seeds)"
    assert str(CardResults(CARD, [row(32)], {}).forecast_mark("a", "whole")) == "no forecast"


def test_without_some_heads_a_model_that_learned_may_see_nothing():
    """Answers nothing without its second head: that is L50 at the shortest distance, not nan."""
    masked = Measurement(name="masked", masked_heads=((0, 1),))

    def in_octaves(results: Results) -> bool | None:
        found = results.of("a", "masked")
        return math.log2(found[0].l50) > 1 if found else None

    card = dataclasses.replace(
        CARD,
        measurements=(Measurement(), masked),
        claims=(Claim(text="Without it nothing is seen.", refuted=in_octaves),),
    )

    def marks(*, whole: float) -> tuple[str, str]:
        """By accuracy at short distances of the whole model."""
        found = row(32, ceiling=whole)
        (answers,) = found.answers
        nothing = dataclasses.replace(answers, measurement="masked", counts=counts(32, 0.0))
        made = {"a": {"masked": {"l50": 100, "beyond": False}}}
        both = dataclasses.replace(found, answers=(answers, nothing))
        results = CardResults(card, [both], {"card": made})
        return results.claim_mark(card.claims[0]).word, results.forecast_mark("a", "masked").word

    assert marks(whole=1.0) == ("held", "failed")
    assert marks(whole=0.4) == ("not learned", "not learned")


def test_the_last_doubling_counts():
    found = [row(32, tokens=2000), row(4, tokens=1000, final="")]
    assert mark(found) == "held (seen, 1 seed)"


def test_seeds_that_are_not_finished_wait_where_others_are():
    assert mark([row(32, 0), row(4, 1, final=""), row(4, 2, final="")]) == "held (seen, 1 seed)"


def test_a_claim_is_marked_by_the_members_it_reads():
    def claimed(*found: rows.Row) -> str:
        return str(CardResults(CARD, found, {}).claim_mark(CARD.claims[0]))

    other = dataclasses.replace(row(32), member="b", final="not converged")
    assert claimed() == claimed(other) == "not run"
    assert claimed(row(32), other) == "held (seen, 1 seed)"
    assert claimed(row(4), other) == "refuted (seen, 1 seed)"
    assert claimed(row(4, final="not converged")) == "not converged (seen, 1 seed)"


def test_what_a_claim_is_given_is_each_seeds_own():
    found = CardResults(CARD, [row(8, 0), row(LONGEST, 1)], {})
    eight, all_ = found.of("a", task="kv")
    assert (eight.seed, all_.seed) == (0, 1)
    assert eight.l50 == pytest.approx(8, rel=0.1) and all_.l50 == math.inf
    assert (eight.worst, all_.worst) == (0, 1)
    assert eight.longest == LONGEST and eight.converged
    assert found.of("b") == []


def test_a_report_is_made_from_rows_alone(tmp_path):
    (tmp_path / "__init__.py").write_text('"""Who sees ten tokens?"""\n')
    (tmp_path / "mine.py").write_text(
        "from configs import find_config\n"
        "from configs.changes import change\n"
        "from studies.card import Card, Claim, Member\n"
        "shared = change(find_config('tiny'), train=dict(schedule='wsd'))\n"
        "claim = Claim(text='a sees 10 tokens.', refuted=lambda found: found.of('a')[0].l50 < 10)\n"
        "members = Member(name='a'), Member(name='b')\n"
        "cards = [Card(name='card', question='Does it?', shared=shared, members=members,"
        " tokens=1000, claims=(claim,))]\n"
    )
    rows.write(tmp_path / "rows", row(16))
    (tmp_path / "forecasts.json").write_text(json.dumps(forecasts(20.0)))
    out = tmp_path / "report" / "page.html"
    report.write(make_job(f"{tmp_path}/"), out)
    page = out.read_text()
    for said in (
        "Who sees ten tokens?",
        "Forecasts: 1 held. Claims: 1 held.",
        "a sees 10 tokens.",
        "held (seen, 1 seed)",
    ):
        assert said in page, said
    assert {path.name for path in out.parent.glob("*.png")} == {"forecasts.png", "curves_card.png"}
