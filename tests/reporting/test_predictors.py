# pyright: reportAttributeAccessIssue=false
# (matplotlib's stubs lack many attributes of artists)
import pytest

from reporting import predictors
from reporting.predictions import predict
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read
from theory.capability import capability


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
    short, long = predictors.compare(members)
    assert [short.trained_length, long.trained_length] == [128, 256]
    assert [member.base for member in long.members] == [10, 30, 50, 100]
    lines = {line.predictor: line for line in long.regressions}
    names = {"D_H", "first_violation", "quarter_period", "base"}
    assert lines.keys() == names
    quarter = lines["quarter_period"]
    assert quarter.slope == pytest.approx(1, abs=0.03)
    assert quarter.offset == pytest.approx(0, abs=0.05)
    assert quarter.as_is < 0.05
    assert quarter.num_censored == predictors.describe(long)["num_censored"] == 0
    # At 128 tokens, base 100 is beyond the distances tested: counted, described, not fitted.
    assert {(line.num_bases, line.num_censored) for line in short.regressions} == {(3, 1)}
    described = predictors.describe(short)
    assert (described["num_bases"], described["num_censored"]) == (3, 1)


def test_forecasts_end_at_the_capability_of_one_head_or_the_longest_distance(members):
    """A forecast ends where D_1 falls below 2.012; layers are not composed."""
    for comparison in predictors.compare(members):
        for member, predicted in zip(comparison.members, comparison.predicted, strict=True):
            inv_freq_1R = member.config.model.position_table(128).inv_freq[0]
            length, longest = int(predicted["D_H"] or 0), member.trained_length - 1
            assert capability(inv_freq_1R, length).value >= 2.012
            ends = capability(inv_freq_1R, length + 1).value < 2.012
            assert ends == ((member.base, longest) != (100, 127))
            assert ends or length == longest


def test_a_task_without_a_count_of_keys_has_no_forecast(tmp_path):
    path = make_sweep(tmp_path, ["base=10", "base=30", "base=50"])
    for base, reach in ((10, 15), (30, 40), (50, 70)):
        config = experiment(f"rope(base={base})")
        make_run(path / f"base={base}", config, answers(config, reach, task="lines", documents=16))
    (comparison,) = predictors.compare(read(path))
    assert [predicted["D_H"] for predicted in comparison.predicted] == [None] * 3
    assert "D_H" not in {line.predictor for line in comparison.regressions}
    assert predictors.draw_predictors(comparison).axes[0].get_title() == "D_H: none"
