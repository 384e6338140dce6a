import pytest

from ropewalk.reporting import predictors
from ropewalk.reporting.predictions import predict
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """Bases that recall exactly their quarter period, and NoPE, at 128 and 256 tokens.

    The quarter period is (pi/2) b^(62/64): 15, 42, 70 and 136, the last beyond 128 tokens.
    """
    folder = tmp_path_factory.mktemp("sweeps")
    paths = []
    for length in (128, 256):
        names = ["base=10", "base=30", "base=50", "base=100", "nope"]
        path = make_sweep(folder / f"T{length}", names)
        for name in names:
            config = experiment("nope" if name == "nope" else f"rope({name})", length=length)
            theory = predict(config.model.position_table(length).inv_freq)
            rows = answers(config, theory.quarter_period, documents=16)
            make_run(path / name, config, rows)
        paths.append(path)
    return read(*paths)


def test_effective_context_that_is_the_quarter_period_has_slope_one_on_it(members):
    comparisons = predictors.compare(members)
    lines = {line.predictor: line for line in comparisons["kv", 256]}
    assert lines.keys() == {"D_H", "first_violation", "quarter_period", "base"}
    quarter = lines["quarter_period"]
    assert quarter.slope.mean == pytest.approx(1, abs=0.03)
    assert quarter.as_is < 0.05 and quarter.num_censored == 0
    # At 128 tokens, base 100 is beyond the distances tested: counted, not fitted.
    short = comparisons["kv", 128]
    assert {(line.num_bases, line.num_censored) for line in short} == {(3, 1)}
    (_, name, table), _ = predictors.comparisons(members)
    assert name == "kv, context length 128"
    assert {cells[0] for _, cells in table.lines} == set(predictors.NAMES.values())


def test_a_task_without_a_count_of_keys_has_no_forecast(tmp_path):
    path = make_sweep(tmp_path, ["base=10", "base=30", "base=50"])
    for base, reach in ((10, 15), (30, 40), (50, 70)):
        config = experiment(f"rope(base={base})")
        make_run(path / f"base={base}", config, answers(config, reach, task="lines", documents=16))
    (lines,) = predictors.compare(read(path)).values()
    assert "D_H" not in {line.predictor for line in lines}
