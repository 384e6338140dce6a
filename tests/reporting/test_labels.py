import pytest

from ropewalk.configs.changes import change
from ropewalk.reporting.labels import as_words, labels
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


def test_a_name_in_a_larger_report_begins_with_that_in_a_smaller_one():
    small = [experiment(f"rope(base={base})", window=w) for base in (10, 30) for w in (8, 16)]
    longer = [change(config, data=dict(context_length=64)) for config in small]
    names = labels(small)
    assert names[0] == "base=10,window=8"
    assert labels(small + longer)[:4] == [f"{name},context_length=128" for name in names]


def test_fields_that_are_constant_within_each_sweep_leave_the_names():
    """Equal names are told apart by their sweeps, and by nothing else."""
    first = [experiment(f"rope(base={base})") for base in (10, 30)]
    other = experiment("rope(base=10)", model=dict(num_heads=2), data=dict(vocab_size=32))
    second = [other, change(other, model=dict(num_heads=4))]
    names = labels(first + second, ["/runs/a"] * 2 + ["/runs/b"] * 2)
    assert names == ["base=10,num_heads=1", "base=30,num_heads=1", "base=10,num_heads=2",
                     "base=10,num_heads=4"]  # fmt: skip
    third = [
        change(config, data=dict(context_length=64, vocab_size=32))
        for config in (*first, experiment("rope(base=1e4)"))
    ]
    names = labels(first + third, ["/runs/a"] * 2 + ["/runs/b"] * 3)
    assert names == ["base=10,sweep=a", "base=30,sweep=a", "base=10,sweep=b", "base=30,sweep=b",
                     "base=10000"]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("base=10,num_heads=1", "base 10, 1 head"),
        ("base=1000000,num_heads=4,window=32", "base 10⁶, 4 heads, window 32"),
        ("rotary=nope", "no rotation"),
        ("base=10@50 (1 of 2 seeds diverged)", "base 10 at step 50 (1 of 2 seeds diverged)"),
        ("rotary=yarn(base=10,factor=4),seed=1", "yarn(base=10,factor=4), seed 1"),
    ],
)
def test_labels_in_words(label, words):
    assert as_words(label) == words
