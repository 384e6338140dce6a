import pytest

from ropewalk.configs.changes import change
from ropewalk.reporting.labels import labels
from ropewalk.utils.figures import make_looks
from tests.reporting.helpers import experiment


def rate(config, learning_rate):
    return change(config, train=dict(learning_rate=learning_rate))


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
        ([rate(TEN, 1e-3), rate(TEN, 3e-3)], ["learning_rate=0.001", "learning_rate=0.003"]),
        (
            # The length suffices, so the rate is omitted.
            [rate(experiment("nope", length=64), 1.0), rate(experiment("nope", length=128), 2.0)],
            ["context_length=64", "context_length=128"],
        ),
        (
            # A path only where nothing else differs, and without the folders that all share.
            [change(TEN, start_from=f"/runs/{name}/base=10@5") for name in "ab"] + [TEN],
            ["start_from=a/base=10@5", "start_from=b/base=10@5", "base=10"],
        ),
    ],
)
def test_labels_have_the_fewest_fields_that_distinguish_members(configs, expected):
    assert labels(configs) == expected


def test_members_have_one_name_and_color_in_reports_of_one_sweep_and_of_several():
    """The name in a report of more members goes on where that in the smaller one ends."""
    small = [experiment(f"rope(base={base})", window=w) for base in (10, 30) for w in (8, 16)]
    longer = [change(config, data=dict(context_length=64)) for config in small]
    names = labels(small)
    assert names[0] == "base=10,window=8"
    assert labels(small + longer)[:4] == [f"{name},context_length=128" for name in names]
    colors = [look.color for look in make_looks([10, 30, None], [1, 1, 1])]
    more = make_looks([1e3, 10, 1e6, 1.1e6, 30, None], [1, 1, 1, 1, 1, 1])
    assert [more[1].color, more[4].color, more[5].color] == colors
    # Bases whose colors are hard to tell apart have different lines.
    assert more[2].linestyle != more[3].linestyle and more[1].linestyle == more[4].linestyle
