import dataclasses

import pytest

from ropewalk.reporting.labels import labels
from tests.reporting.helpers import experiment


def rate(config, learning_rate):
    train = dataclasses.replace(config.train, learning_rate=learning_rate)
    return dataclasses.replace(config, train=train)


TEN = experiment("rope(base=10)")


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([TEN], ["base=10"]),
        ([experiment("nope")], ["rotary=nope"]),
        (
            # The most common window (none) is omitted.
            [TEN, experiment("rope(base=1e4)"), experiment("rope(base=1e4)", window=32)],
            ["base=10", "base=10000", "base=10000,window=32"],
        ),
        (
            # The base suffices, but the window is not that of the others.
            [TEN, experiment("rope(base=30)"), experiment("rope(base=1e4)", window=32)],
            ["base=10", "base=30", "base=10000,window=32"],
        ),
        ([rate(TEN, 1e-3), rate(TEN, 3e-3)], ["learning_rate=0.001", "learning_rate=0.003"]),
        (
            # The length suffices, so the rate is omitted.
            [rate(experiment("nope", length=64), 1.0), rate(experiment("nope", length=128), 2.0)],
            ["context_length=64", "context_length=128"],
        ),
        (
            [TEN, experiment("rope(base=30)"), experiment("p_rope(base=10,rotary_fraction=0.5)")],
            ["base=10", "base=30", "rotary=p_rope(base=10,rotary_fraction=0.5)"],
        ),
    ],
)
def test_labels_have_the_fewest_fields_that_distinguish_members(configs, expected):
    assert labels(configs) == expected
