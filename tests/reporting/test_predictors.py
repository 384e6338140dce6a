# pyright: reportAttributeAccessIssue=false
# (matplotlib's stubs lack half of what its artists have)
import numpy as np
import pytest

from experiment.run import find_runs
from reporting import members as members_lib
from reporting import predictors
from tests.reporting.helpers import answers, experiment, make_run, make_sweep
from theory.capability import capability
from theory.predictions import predict


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """At 128 and 256 tokens bases that see exactly their quarter period, and NoPE.

    The quarter period is (pi/2) b^(62/64): 15, 42, 70, 136, beyond what 128 tokens can show.
    """
    folder = tmp_path_factory.mktemp("sweeps")
    paths = []
    for length in (128, 256):
        names = ["base=10", "base=30", "base=50", "base=100", "nope"]
        path = make_sweep(folder / f"T{length}", names)
        for name in names:
            config = experiment("nope" if name == "nope" else f"rope({name})", length=length)
            theory = predict(config.model.rotary_table(length).inv_freq)
            rows = answers(config, theory.quarter_period, documents=2)
            make_run(path / name, config, rows)
        paths.append(path)
    return members_lib.read(find_runs(paths))


def test_effective_context_that_is_the_quarter_period_has_slope_one_on_it(members):
    short, long = predictors.comparisons(members)
    assert [short.trained_length, long.trained_length] == [128, 256]
    assert [member.base for member in long.members] == [10, 30, 50, 100]
    lines = {line.predictor: line for line in long.regressions}
    names = {"forecast", "first_violation", "quarter_period", "arccos_bound", "base"}
    assert lines.keys() == names
    quarter, bound = lines["quarter_period"], lines["arccos_bound"]
    assert quarter.slope == pytest.approx(1, abs=0.03)
    assert quarter.offset == pytest.approx(0, abs=0.05)
    assert quarter.as_is < 0.05
    # Two layers leave a half at an angle of π/4, one half of the way to the quarter.
    assert bound.slope == pytest.approx(1, abs=0.03)
    assert bound.offset == pytest.approx(1, abs=0.05)
    assert bound.as_is == pytest.approx(1, abs=0.05)
    assert quarter.num_censored == 0 and "more lies" not in predictors.reading(long)
    # At 128 tokens base 100 lies beyond what could be asked: counted, and said, and not fitted.
    assert {(line.num_bases, line.num_censored) for line in short.regressions} == {(3, 1)}
    assert "of 3 bases; that of 1 more lies beyond what was asked." in predictors.reading(short)


def test_the_reading_names_all_that_tie(members):
    """The logarithms of the quarter period, of the arccos bound and of the base are lines."""
    _, long = predictors.comparisons(members)
    text = predictors.reading(long)
    assert text.startswith(
        "A base left out is predicted best by the quarter period and arccos bound and base"
    )
    lines = {each.predictor: each for each in long.regressions}
    assert f"theory length {lines['first_violation'].error:.2f})" in text
    forecast = lines["forecast"].as_is
    assert f"with nothing fitted, they err by forecast {forecast:.2f}, theory" in text


def test_forecasts_are_those_of_one_head_and_end_where_the_questions_do(members):
    """Where D_1 falls below 2.012; two layers of one head are two layers of one head."""
    for comparison in predictors.comparisons(members):
        for member, says in zip(comparison.members, comparison.predicted, strict=True):
            inv_freq_1R = member.config.model.rotary_table(128).inv_freq[0]
            length, longest = int(says["forecast"] or 0), member.trained_length - 1
            assert capability(inv_freq_1R, length).value >= 2.012
            ends = capability(inv_freq_1R, length + 1).value < 2.012
            assert ends == ((member.base, longest) != (100, 127))
            assert ends or length == longest


def test_a_task_whose_keys_nobody_counted_has_no_forecast(tmp_path):
    path = make_sweep(tmp_path, ["base=10", "base=30", "base=50"])
    for base, reach in ((10, 15), (30, 40), (50, 70)):
        config = experiment(f"rope(base={base})")
        make_run(path / f"base={base}", config, answers(config, reach, task="lines", documents=2))
    (comparison,) = predictors.comparisons(members_lib.read(find_runs([path])))
    assert [says["forecast"] for says in comparison.predicted] == [None] * 3
    assert "forecast" not in {line.predictor for line in comparison.regressions}
    assert predictors.against_predictors(comparison).axes[0].get_title() == "forecast: none"


def test_points_and_lines_lie_where_the_numbers_say(members):
    _, long = predictors.comparisons(members)
    figure = predictors.against_predictors(long)
    quarter = figure.axes[2]
    assert quarter.get_title() == "quarter period"
    marks = [line for line in quarter.get_lines() if line.get_marker() == "o"]
    x = [float(np.ravel(mark.get_xdata())[0]) for mark in marks]
    assert x == pytest.approx([15, 42, 70, 136], abs=0.7)
    (text,) = [text.get_text() for text in quarter.texts if "slope" in text.get_text()]
    assert text.startswith("y = x: ±0.0") and "\nslope 1.0" in text


def test_a_base_beyond_what_was_asked_is_an_arrow_that_the_line_does_not_reach(members):
    short, long = predictors.comparisons(members)
    for comparison, last_fitted, num_arrows in ((short, 70, 1), (long, 136, 0)):
        figure = predictors.against_predictors(comparison)
        quarter = figure.axes[2]
        assert len([text for text in quarter.texts if text.arrow_patch]) == num_arrows
        (line,) = [line for line in quarter.get_lines() if line.get_lw() == 1.3]
        assert np.max(line.get_xdata()) == pytest.approx(last_fitted, abs=0.7)
        (legend,) = figure.legends
        names = [text.get_text() for text in legend.get_texts()]
        assert ("beyond what was\nasked: not fitted" in names) == bool(num_arrows)


def test_a_seed_that_did_not_learn_does_not_take_its_base_from_the_line(tmp_path):
    reaches = {(10, 0): 15, (10, 1): 0, (30, 0): 40, (50, 0): 70}
    names = [f"base={base},seed={seed}" for base, seed in reaches]
    path = make_sweep(tmp_path, names)
    for ((base, seed), reach), name in zip(reaches.items(), names, strict=True):
        config = experiment(f"rope(base={base})", seed=seed)
        make_run(path / name, config, answers(config, reach, documents=2))
    (comparison,) = predictors.comparisons(members_lib.read(find_runs([path])))
    found = {(line.num_bases, line.num_censored) for line in comparison.regressions}
    assert found == {(3, 0)}


def test_two_bases_are_points_without_a_line(members):
    two = [m for m in members if m.trained_length == 128 and m.base in (10, 30)]
    (short,) = predictors.comparisons(two)
    assert [member.base for member in short.members] == [10, 30]
    assert short.regressions == ()
    assert "no line is drawn" in predictors.reading(short)


def test_a_series_is_one_model_at_several_lengths(members):
    series = predictors.by_trained_length(members, "kv")
    assert [predictors.name(each) for each in series] == [
        "rope(base=10)",
        "rope(base=30)",
        "rope(base=50)",
        "rope(base=100)",
        "nope",
    ]
    assert all([m.trained_length for m in each] == [128, 256] for each in series)
    assert predictors.by_trained_length([m for m in members if m.trained_length == 128], "kv") == []


def test_models_of_one_base_that_differ_otherwise_are_no_series(tmp_path):
    path = make_sweep(tmp_path, ["whole", "half"])
    for name, fraction, length in (("whole", 1.0, 128), ("half", 0.5, 256)):
        config = experiment(f"rope(base=10,rotary_fraction={fraction})", length=length)
        make_run(path / name, config, answers(config, 20, documents=2))
    members = members_lib.read(find_runs([path]))
    assert predictors.by_trained_length(members, "kv") == []


def test_censored_members_are_arrows_against_trained_length(members):
    """Base 100 at 128 tokens, and NoPE at both: three arrows."""
    figure = predictors.against_trained_length(members, "kv")
    (ax,) = figure.axes
    assert len([text for text in ax.texts if text.arrow_patch]) == 3
    gids = [text.arrow_patch.get_gid() for text in ax.texts if text.arrow_patch]
    assert any("base=100,context_length=128, kv at 128: > 127" in gid for gid in gids)
