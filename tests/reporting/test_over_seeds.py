"""Seeds of synthetic answers: values, means and t intervals against tables."""

import csv
import io

import numpy as np
import pytest

from ropewalk.experiment.run import find_runs
from ropewalk.reporting import members as members_lib
from ropewalk.reporting import results, tables
from ropewalk.reporting.labels import describe_seeds
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row

T_2 = 4.302652729911275  # of two degrees of freedom at 97.5%, from tables


def seeded(variant, seed, data_seed=0):
    return experiment(variant, seed=seed, data=dict(seed=data_seed))


@pytest.fixture
def two_bases(tmp_path):
    """Base 10 recalls 9, 19 and 39 tokens; two seeds of base 30 recall all distances."""
    reaches = {(10, 0): 10, (10, 1): 20, (10, 2): 40, (30, 0): 50, (30, 1): 1000, (30, 2): 1000}
    folder = make_sweep(tmp_path, [f"{base},{seed}" for base, seed in reaches])
    for (base, seed), reach in reaches.items():
        config = seeded(f"rope(base={base})", seed, seed)
        text = row(config, "perplexity", nll=1.0 + seed, num_tokens=10, document=3)
        make_run(folder / f"{base},{seed}", config, [*answers(config, reach), text])
    return read(folder)


def test_means_over_seeds_and_censored_values(two_bases):
    ((_, _, table),) = tables.seeds(two_bases)
    tens, thirties = (dict(zip(table.heads, cells, strict=True)) for _, cells in table.lines)
    assert (tens["member"], tens["seeds"]) == ("base=10", "3")
    # 9.5, 19.5 and 39.5 tokens, nearly.
    l50 = [float(text.strip("[],")) for text in tens["kv: L50 (tokens)"].split()]
    logs = np.log([9.5, 19.5, 39.5])
    half = T_2 * logs.std(ddof=1) / 3**0.5
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    assert l50 == pytest.approx(expected, rel=0.1)
    assert thirties["kv: L50 (tokens)"] == "> 127 in 2 of 3"
    # 49/127, 1 and 1: Student's interval, [-.08, 1.7], ends where shares do.
    assert thirties["kv: mean accuracy"].endswith(" [0.00, 1.00]")
    # exp of 1, 2 and 3 nats: the geometric mean is e^2.
    assert tens["perplexity: perplexity"].startswith(f"{np.exp(2):.3g} [")
    assert tens["training loss (nats)"] == "4 [4, 4]"  # its last tenth is the last step: 4


def test_runs_that_differ_only_in_the_data_seed_are_seeds(tmp_path):
    """Rows of both record seed 0 and must not be counted as one seed."""
    for data_seed, reach in ((4, 20), (7, 40)):
        config = seeded("rope(base=10)", 0, data_seed)
        make_run(tmp_path / f"{data_seed}", config, answers(config, reach))
    runs = find_runs([tmp_path / "4", tmp_path / "7"])
    (member,) = members_lib.read(runs)
    assert member.seeds == ((0, 4), (0, 7)) and member.estimates["kv"].num_seeds == 2
    together, *seeds = csv.DictReader(io.StringIO(results.to_csv([member])))
    assert (together["seed"], together["data_seed"], together["seeds"]) == ("0", "", "2")
    assert [(line["seed"], line["data_seed"]) for line in seeds] == [("0", "4"), ("0", "7")]
    assert float(seeds[0]["l50"]) == pytest.approx(19.5, rel=0.1)
    assert describe_seeds([run.config for run in runs]) == "2 seeds, of rows only (seed=0)"
