import numpy as np
import pytest

from experiment.run import find_runs
from reporting import members as members_lib
from reporting import text
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, row


def read(path):
    return members_lib.read(find_runs([path]))


def test_first_losses_are_paired_and_averaged_over_seeds(tmp_path):
    """Seed 0: +1 and +3 nats on chunks of 1 and 3 tokens, 2.5 a token; seed 1: 0.5 on both."""
    folder = make_sweep(tmp_path, ["base=10,seed=0", "base=10,seed=1"])
    for seed, changes in ((0, (1.0, 3.0)), (1, (0.5, 0.5))):
        config = experiment("rope(base=10)", seed=seed)
        rows = []
        for query, change in enumerate(changes):
            chunk = {"query": query, "num_tokens": (1, 3)[query]}
            rows.append(row(config, "step1", nll=5.0 * (query + 1), **chunk))
            other = 5.0 * (query + 1) + change
            rows.append(row(config, "step1", rotary="rope(base=500)", nll=other, **chunk))
        make_run(folder / f"base=10,seed={seed}", config, rows)
    (member,) = read(folder)
    found = text.first_losses(member)[128]
    assert found["trained"].mean == 0
    assert found["rope(base=500)"].mean == pytest.approx((2.5 + 0.5) / 2)
    # Ratio estimator of seed 0: sqrt(2 / 1 * 2 * 1.5**2) / 4; seed 1 has none.
    assert found["rope(base=500)"].standard_error == pytest.approx((2 * 2 * 1.5**2) ** 0.5 / 4 / 2)
    assert text.step1_lengths([member]) == [128]
    ax = text.step1_scan([member]).axes[0]
    points = {
        float(x): float(y)
        for line in ax.get_lines()
        if len(line.get_xdata()) == 2 and line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert points == pytest.approx({10.0: 0.0, 500.0: 1.5})


def test_first_losses_of_scans_of_unlike_size_are_compared_where_both_asked(tmp_path):
    config = experiment("rope(base=10)")
    rows = [row(config, "step1", nll=1.0, document=document) for document in (0, 1, 2)]
    rows += [row(config, "step1", rotary="nope", nll=1.25, document=i) for i in (1, 2, 3)]
    make_run(tmp_path, config, rows)
    (member,) = read(tmp_path)
    found = text.first_losses(member)[128]["nope"]
    assert (found.mean, found.num_units) == (0.25, 2)


def test_su_columns(tmp_path):
    """Shares of right tokens: 3/4 at 128; at 256: 2/4 repeated at T, 0 not repeated."""
    config = experiment("rope(base=10)")

    def asked(task, length, right):
        return [
            row(config, task, length=length, document=i, first_token_correct=i < right)
            for i in range(4)
        ]

    rows = asked("repeated", 128, 3) + asked("repeated", 256, 0)
    make_run(tmp_path, config, rows + asked("repeated(lag=trained)", 256, 2))
    ((length, table),) = text.su_tables(read(tmp_path)).items()
    ((member, schedule, columns),) = table
    assert (length, member.base, schedule) == (256, 10, "trained")
    shares = {name: columns[name].mean for name in text.SU_COLUMNS if name in columns}
    assert shares == {"trained": 0.75, "repeated, lag T": 0.5, "not repeated": 0.0}


def test_superficial_shows_perplexity_over_the_best_and_retrieval(tmp_path):
    """exp(2.2 - 2.0) = 1.2214; accuracy, mean over 127 distances: 19/127 and 59/127."""
    folder = make_sweep(tmp_path, ["base=10", "base=30", "nope"])
    for name, reach, nll in (("base=10", 20, 2.2), ("base=30", 60, 2.0), ("nope", 1000, 1.0)):
        config = experiment("nope" if name == "nope" else f"rope({name})")
        rows = [*answers(config, reach, documents=2), row(config, "perplexity", nll=nll)]
        make_run(folder / name, config, rows)
    members = read(folder)
    assert text.superficial_lengths(members) == [128]
    above, below = text.superficial(members).axes

    def points(ax):
        lines = [line for line in ax.get_lines() if line.get_marker() == "o"]
        return [float(np.ravel(line.get_ydata())[0]) for line in lines]

    assert points(above) == pytest.approx([np.exp(0.2), 1])
    assert points(below) == pytest.approx([19 / 127, 59 / 127], abs=0.005)
