"""Four cards: bases, other rotations, a base raised in continued training, and more tokens.

Claims, forecasts and measurements were committed before any row, in docs/language_model.md.
"""

from collections.abc import Callable, Sequence

import numpy as np

from configs import find_config
from studies.card import Card, Claim, Measurement, Member, Value
from studies.language_model import measures
from studies.language_model.measures import Sums, over_seeds
from studies.rows import Row

LENGTH, LONG = 512, 2048  # tokens
REFERENCE = "base=10000"
BASES: tuple[int, ...] = 10, 100, 1_000, 10_000

_WHOLE = Measurement()
# After .5M tokens of continued training.
_EARLY = Measurement(
    name="early",
    tasks=tuple(f"lagcopy(text={text},passage=32,crops=16)" for text in ("natural", "control")),
    step=61,
)
_LONG = Measurement(name="long", tasks=("perplexity",), lengths=(1024, LONG))

Measure = Callable[[Card, Sequence[Row]], Value | None]


def runs_of(rows: Sequence[Row], card: str, member: str) -> dict[int, Row]:
    """Return the rows of a member by seed."""
    return {row.seed: row for row in rows if (row.card, row.member) == (card, member)}


def losses(row: Row, length: int, first: float = 1, last: float = np.inf) -> Sums | None:
    """Return the losses of a row at positions first ... last."""
    sums = measures.sum_losses(row, length)
    return sums and sums.within(first, last)


def gains(row: Row, first: float = 1, measurement: str = _WHOLE.name) -> Sums | None:
    """Return the copy gains of a row at lags from `first` on."""
    sums = measures.sum_copy_gains(row, LENGTH, measurement)
    return sums and sums.within(first, np.inf)


def compare(
    statistic: Callable[..., Value],
    read: Callable[[Row], Sums | None],
    member: str,
    *others: tuple[str, str],
    in_octaves: bool = False,
) -> Measure:
    """Return a measure of a card's member and other runs of the same seed, over seeds.

    Args:
      statistic: of the sums of the member and of each of `others`.
      read: makes the sums of a row.
      member: of the card.
      others: card and member of each.
      in_octaves: as of `over_seeds`.
    """

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        groups = [runs_of(rows, *names) for names in ((card.name, member), *others)]
        values = []
        for seed in sorted(set.intersection(*map(set, groups))):
            sums = [read(group[seed]) for group in groups]
            if None not in sums:
                values.append(statistic(*sums))
        return over_seeds(values, in_octaves=in_octaves) if values else None

    return measure


_REFERENCE = "language_model", REFERENCE


def cost(member: str, *, length: int = LENGTH, first: float = 1, last: float = np.inf) -> Measure:
    """Return the measure of a member's loss minus that of base 1e4, nats per token."""
    read = lambda row: losses(row, length, first, last)  # noqa: E731
    return compare(measures.measure_difference, read, member, _REFERENCE)


def copy_ratio(member: str, first: float) -> Measure:
    """Return the measure of a member's copy gain divided by that of base 1e4."""
    return compare(measures.measure_ratio, lambda row: gains(row, first), member, _REFERENCE)


def half_lag(member: str) -> Measure:
    """Return the measure of a member's half lag, tokens."""
    return compare(measures.measure_half_lag, gains, member, _REFERENCE, in_octaves=True)


def half_lag_ratio(member: str, other: str) -> Measure:
    """Return the measure of the half lag of `member` divided by that of `other`."""

    def statistic(run: Sums, other_run: Sums, reference: Sums) -> Value:
        values = [measures.measure_half_lag(item, reference) for item in (run, other_run)]
        # One seed decides nothing here: its interval is open.
        return Value(values[0].value / values[1].value, 0, np.inf, 1)

    others = ("language_model", other), _REFERENCE
    return compare(statistic, gains, member, *others, in_octaves=True)


def regained(member: str, measurement: str = _WHOLE.name) -> Measure:
    """Return the measure of the regained share of base 100's missing copy gain beyond 128."""

    def read(row: Row) -> Sums | None:
        is_continued = row.card == "language_model_continued"
        return gains(row, 128, measurement if is_continued else _WHOLE.name)

    others = ("language_model", "base=100"), _REFERENCE
    return compare(measures.measure_regained, read, member, *others)


def growth(member: str) -> Measure:
    """Return the measure of a member's cost after 40M tokens minus that after 10M."""

    def statistic(run: Sums, reference: Sums, before: Sums, reference_before: Sums) -> Value:
        later = run._replace(total_DB=run.total_DB - reference.total_DB)
        earlier = before._replace(total_DB=before.total_DB - reference_before.total_DB)
        return measures.measure_difference(later, earlier)

    others = ("language_model_long", REFERENCE), ("language_model", member), _REFERENCE
    return compare(statistic, lambda row: losses(row, LENGTH), member, *others)


def make_card(name: str, members: tuple[Member, ...], claims: tuple[Claim, ...], **fields) -> Card:
    """Return the card of a config of the same name."""
    return Card(
        name=name,
        question=find_config(name).question,
        config=name,
        members=members,
        claims=claims,
        is_blind=True,
        **fields,
    )


def base_member(base: int, *overrides: str) -> Member:
    """Return a member with a base; its name is that of the sweep's directory."""
    return Member(name=f"base={base}", overrides=(f"model.rotary.base={base}", *overrides))


cards = [
    make_card(
        "language_model",
        tuple(map(base_member, BASES)),
        (
            Claim(
                text="a1. Base 10 costs at least .02 nats per token.",
                measure=cost("base=10"),
                at_least=0.02,
            ),
            Claim(text="a2. Base 10 costs at most .10.", measure=cost("base=10"), at_most=0.10),
            Claim(
                text="a3. Base 10 costs less than .01 at positions 1 to 16.",
                measure=cost("base=10", last=16),
                at_most=0.01,
            ),
            Claim(
                text="b1. Base 100 costs less than .01 nats.",
                measure=cost("base=100"),
                at_most=0.01,
            ),
            Claim(
                text="b2. Copy gain of base 100 at lags beyond 256 is below half of base 1e4's.",
                measure=copy_ratio("base=100", 256),
                at_most=0.5,
            ),
            Claim(
                text="b3. Base 1,000 costs less than .005 nats.",
                measure=cost("base=1000"),
                at_most=0.005,
            ),
            Claim(
                text="b3. Copy gain of base 1,000 at these lags is at least .8 of base 1e4's.",
                measure=copy_ratio("base=1000", 256),
                at_least=0.8,
            ),
            Claim(
                text="c1. Half lag of base 10: 3 to 4.3 times 5, its first distance with B_m < 0.",
                measure=half_lag("base=10"),
                at_least=13,
                at_most=24,
            ),
            Claim(
                text="c2. Half lag of base 100: 3 to 4.3 times 46, the first one with B_m < 0.",
                measure=half_lag("base=100"),
                at_least=120,
                at_most=227,
            ),
            Claim(
                text="c3. Half lags of bases 100 and 10 have the ratio of these distances, 9.2.",
                measure=half_lag_ratio("base=100", "base=10"),
                at_least=6.5,
                at_most=13,
            ),
            Claim(
                text="g. At 2,048 tokens base 100 has a lower loss beyond 512 than base 1e4.",
                measure=cost("base=100", length=LONG, first=LENGTH),
                at_most=0,
            ),
        ),
        measurements=(_WHOLE, _LONG),
    ),
    make_card(
        "language_model_variants",
        (
            base_member(1_000_000),
            Member(name="nope", overrides=("model.rotary=nope",)),
            Member(
                name="tenth", overrides=("model.rotary=rope(base=10000,rotary_fraction=0.09375)",)
            ),
            Member(
                name="quarter", overrides=("model.rotary=rope(base=10000,rotary_fraction=0.25)",)
            ),
            Member(name="dropped", overrides=find_config("language_model_variants").members[-1]),
        ),
        (
            Claim(
                text="f1. A tenth of the features costs less than .01.",
                measure=cost("tenth"),
                at_most=0.01,
            ),
            Claim(
                text="f2. No rotation costs at least .03 nats.", measure=cost("nope"), at_least=0.03
            ),
            Claim(
                text="f3. Rotation dropped for the last 2M tokens costs less than .02 nats.",
                measure=cost("dropped"),
                at_most=0.02,
            ),
            Claim(
                text="f3. At 2,048 tokens the loss without rotation is below that of base 1e4.",
                measure=cost("dropped", length=LONG),
                at_most=0,
            ),
        ),
        measurements=(_WHOLE, _LONG),
        seeds=(0,),
    ),
    make_card(
        "language_model_continued",
        (base_member(100), base_member(10_000)),
        (
            Claim(
                text="d1. Base 100, continued for 2M tokens at base 1e4, regains at least .9 of "
                "the missing copy gain at lags beyond 128.",
                measure=regained(REFERENCE),
                at_least=0.9,
            ),
            Claim(
                text="d2. It regains half of it within .5M tokens.",
                measure=regained(REFERENCE, _EARLY.name),
                at_least=0.5,
            ),
            Claim(
                text="d3. The control that continues at base 100 regains less than .2.",
                measure=regained("base=100"),
                at_most=0.2,
            ),
        ),
        measurements=(_WHOLE, _EARLY),
        seeds=(0,),
    ),
    make_card(
        "language_model_long",
        (base_member(100), base_member(10_000)),
        (
            Claim(
                text="e. The cost of base 100 is larger after 40M tokens than after 10M.",
                measure=growth("base=100"),
                at_least=0,
            ),
        ),
        seeds=(0,),
    ),
]
