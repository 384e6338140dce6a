"""A card makes the configs of its members; a claim is marked by its interval."""

import dataclasses
import math

import pytest

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.model.rotary.rope import Rope
from ropewalk.studies.card import Card, Claim, Value, read
from ropewalk.studies.run import missing

WSD = change(find_config("tiny"), train=dict(schedule="wsd", warmup_steps=2))
BASES = {"ten": ("model.rotary.base=10",), "b1e4": ()}


def card(**changes) -> Card:
    fields = dict(name="echo", question="?", config=WSD, members=BASES, tokens=10_000)
    return Card(**(fields | changes))


def test_members_share_all_but_their_overrides():
    data = WSD.data
    num_steps = -(-10_000 // (data.batch_size * data.context_length))
    ten, other = card().configs().values()
    assert ten.train.num_steps == other.train.num_steps == num_steps
    assert ten.model.rotary == Rope(base=10)
    assert other.model.rotary == WSD.model.rotary
    assert dataclasses.replace(ten, model=other.model) == other
    named = card(config="tiny", tokens=None).configs()["b1e4"]
    assert named.train == find_config("tiny").train


def test_budgets_are_shares_of_the_tokens():
    some = card(tokens=100 * WSD.data.batch_size * WSD.data.context_length, shares=(0.25, 1, 2))
    steps = [config.train.num_steps for config in some.budgets(some.configs()["ten"])]
    assert steps == [25, 100, 200]
    assert some.budgets(some.configs()["ten"])[1] == some.configs()["ten"]


INF = math.inf


@pytest.mark.parametrize(
    ("ends", "claimed", "mark"),
    [
        ((26.01, 28.4), (26, INF), "held"),
        ((25.9, 28.4), (26, INF), "undecided"),  # the estimate alone would hold it
        ((20, 25.9), (26, INF), "refuted"),
        ((253, INF), (128, INF), "held"),
        ((0.3, 0.8), (0.42, 0.75), "undecided"),
        ((math.nan, 3), (0, INF), "undecided"),
        ((-INF, INF), (0, INF), "undecided"),  # was not learned
    ],
)
def test_a_claim_is_marked_by_its_interval(ends, claimed, mark):
    """An interval that contains the threshold decides nothing."""
    assert Value(1.0, *ends, 3).mark(*claimed) == mark


def test_a_claim_that_a_rival_passes_supports_neither():
    def claim(**rivals):
        return Claim(
            text="?", measure=lambda card, rows: None, at_least=60, at_most=120, rivals=rivals
        )

    value = Value(102, 95, 116, 131)
    assert claim(root=99).mark(value) == "held, by rivals too"
    assert claim(period=58).mark(value) == "held"
    assert claim(root=99).mark(value._replace(low=130, high=140)) == "refuted"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value(math.nan, -INF, INF, 3), "not learned"),
        (Value(math.nan, 26.0, INF, 3), "undetermined"),  # the end of a fall is not known
        (Value(math.nan, math.nan, math.nan, 3), "undetermined"),  # too few answers
        (Value(2345.6, 0.5, INF, 3), "2,346 [0.5, inf]"),  # it was 2.35e+03
    ],
)
def test_a_value_without_a_number_says_why(value, text):
    assert str(value) == text


def number(value, half=1.0):
    return lambda card, rows: Value(value, value - half, value + half, len(rows))


def least(*measures):
    return lambda card, rows: min(measure(card, rows) for measure in measures)


GOOD = """
name = "echo"
question = "?"
config = "short"
overrides = ["model.num_layers=1"]
members.ten = ["model.rotary.base=10"]
[[claims]]
text = "All is well."
measure = ["least", ["number", 5.0, { half = 0.5 }], ["number", 4.0]]
at_least = 3
"""


def test_a_card_is_read_from_a_file(tmp_path):
    (tmp_path / "echo.toml").write_text(GOOD)
    echo = read(tmp_path / "echo.toml", {"short": WSD}, {"number": number, "least": least})
    (config,) = echo.configs().values()
    assert (config.model.num_layers, config.model.rotary) == (1, Rope(base=10))
    assert config.train == WSD.train and echo.name == config.name == "echo"
    assert echo.claims[0].measure(echo, [1, 2]) == Value(4.0, 3.0, 5.0, 2)


def test_a_member_trains_on_the_tokens_of_its_card():
    """Twice the rows of a step are twice the tokens; a row would name another budget."""
    other = card(members={"wide": (f"data.batch_size={2 * WSD.data.batch_size}",)})
    with pytest.raises(ValueError, match=r"member wide: trains on .* not on the card's"):
        missing(other, 0, [])
    assert missing(card(), 0, [])
