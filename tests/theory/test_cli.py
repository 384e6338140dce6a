import functools
import json
import math

import pytest

from ropewalk.configs import find_config
from ropewalk.configs.changes import change
from ropewalk.experiment.run import RunDirectory
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.rope import Rope
from tests.in_process import call

theory = functools.partial(call, "-m", "theory")  # what it prints, errors too


@pytest.mark.parametrize(
    ("arguments", "first", "checked"),
    [
        ("--base 1e4", 725, 725),
        # Interpolation by 4 divides every distance by 4: 4 * 724 < m <= 4 * 725.
        ("--rotary position_interpolation(base=10000,factor=4)", 2897, 2897),
        ("--rotary nope", None, 2**31 - 1),
        ("--base 1e4 --limit 725", None, 724),
    ],
)
def test_length(arguments, first, checked):
    command = "length", "--head-dim", "64", *arguments.split()
    result = json.loads(theory(*command, "--json"))
    assert result.pop("rotary") == arguments.split()[1].replace("1e4", "rope(base=10000)")
    assert result == {"head_dim": 64, "first_violation": first, "checked_up_to": checked}
    always = "none, proved for all distances: at least half of the pairs do not rotate\n"
    text = always if arguments == "--rotary nope" else f"{first or f'> {checked}'}\n"
    assert theory(*command) == text


def test_a_curve_of_a_dynamic_variant_is_that_of_its_length(tmp_path):
    """Base 10 ends at 5 tokens; a row of 1,280 tokens stretches 128 by ten: 40 < m <= 50."""
    variant = "dynamic_position_interpolation(base=10,original_context_length=128)"
    arguments = ("--head-dim", "64", "--length", "1280", "--out", tmp_path / "curve.svg")
    result = json.loads(theory("curve", "--rotary", variant, *arguments, "--json"))
    assert 40 < result["first_violation"][variant] <= 50


def test_length_of_a_run_has_every_layer(tmp_path):
    """46 and 725 are the first violations of bases 100 and 1e4 at 64 features."""
    layers = (Rope(base=100.0), Rope(base=1e4), Nope())
    for name, rotary, reach in (("plain", layers[0], 46), ("mixed", layers, None)):
        run = RunDirectory(tmp_path / name)
        model = dict(rotary=rotary, head_dim=64, num_layers=6)
        run.write_config(change(find_config("tiny"), model=model), [])
        result = json.loads(theory("length", run.path, "--json"))
        assert result["first_violation"] == reach
        assert result["checked_up_to"] == (reach or 2**31 - 1)
    assert result["layers"] == [46, 725, None] * 2
    lines = theory("length", tmp_path / "mixed").splitlines()
    assert lines[1] == "layer 1: 725" and lines[2].startswith("layer 2: none, proved for all")
    assert theory("length", tmp_path / "plain") == "46\n"
    pattern = "--head-dim", "64", "--rotary", "[rope(base=100),[rope(base=1e4),nope]]"
    result = json.loads(theory("length", *pattern, "--json"))
    assert result["heads"] == [[46, 46], [725, None]] and result["layers"] == [46, None]


def test_bound_prints_exactly_its_keys():
    result = json.loads(theory("bound", "--length", "1k", "--json"))
    assert list(result) == ["length", "head_dim", "rotary_fraction", "low", "high"]
    assert (result["length"], result["head_dim"], result["rotary_fraction"]) == (1024, 128, 1.0)
    assert 4293.43 < result["low"] < result["high"] < 4293.45  # Su 2024: 4.3e3

    more = json.loads(theory("bound", "--length", "1k", "--json", "--stable", "--intervals"))
    assert list(more) == [*result, "stable", "intervals"]
    assert more["intervals"][0][0] == result["high"]
    assert more["intervals"][-1][0] == pytest.approx(more["stable"], rel=1e-8)
    assert more["intervals"][-1][1] is None


def test_rounded_bounds_are_feasible():
    """The published two digits, 1.2e4 at 2048 and 2.7e4 at 4096, are infeasible themselves."""
    for length, published, typed in (("2048", "1.2e4", "1.16e4"), ("4096", "2.7e4", "2.696e4")):
        assert int(theory("length", "--base", published)) < int(length)
        assert int(theory("length", "--base", typed)) >= int(length)
        out = theory("bound", "--length", length)
        assert f"rounded up: {typed.replace('e4', 'e+04')} " in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [  # it was "base 1.000000002 is the smallest"
        ("2k --rotary-fraction 0.5", "every base has B_m >= 0 at every distance (at least half"),
        ("2k --rotary-fraction 0.25 --stable", "every base has B_m >= 0 at every distance (at l"),
        ("2", "no base is too small: 1.000000002 has B_m >= 0 below 2 tokens"),
    ],
)
def test_a_bound_that_no_base_misses(arguments, text):
    """1 + cos >= 0 for each rotated pair with an unrotated one; B_0 and B_1 are positive."""
    out = theory("bound", "--length", *arguments.split())
    assert out.startswith(text) and out.count("\n") == 1


@pytest.mark.hf
@pytest.mark.long
def test_models():
    pytest.importorskip("transformers")
    models = json.loads(theory("models", "--json"))["models"]
    result = {(model["model"], model["kind"].removesuffix("_attention")): model for model in models}
    # Table 1 of Men et al. has base 1e4 for both Llamas and Baichuan 2.
    for name, reach in (("llama-7b", 2048), ("llama-2-7b", 4096), ("baichuan2-7b", 4096)):
        assert (result[name, "full"]["first_violation"], result[name, "full"]["reach"]) == (
            1707,
            reach,
        )
    assert result["mistral-7b-v0.2", "full"]["first_violation"] == 27115
    # Heads rotated by a quarter, and layers without rotation, have no violation.
    for name in ("gpt-neox-20b", "deepseek-v3", "smollm3-3b"):
        assert result[name, "full"]["first_violation"] is None and result[name, "full"]["covers"]
    # Liu et al.: 92 of Llama 2's 128 features complete a turn within 4096 tokens.
    assert result["llama-2-7b", "full"]["critical_dimension"] == 92
    assert not result["llama-2-7b", "full"]["covers"] and result["llama-3-8b", "full"]["covers"]
    only = theory("models", "llama-3-8b")
    assert "llama-3-8b" in only and "llama-2-7b" not in only
    assert "did you mean 'llama-3-8b'?" in theory("models", "lama-3-8b", status=2)


def test_models_need_transformers(monkeypatch):
    """The rows have settings of rotation alone, from which no model can be imported."""
    monkeypatch.setattr("ropewalk.theory.__main__.has_transformers", lambda: False)
    printed = theory("models", "llama-3-8b", status=2)
    assert "install transformers" in printed and "config.json" not in printed


def test_capability_prints_exactly_its_keys():
    """√2 cos((M - 1) ω / 2) for one pair; two heads have half of the distances each."""
    arguments = ("capability", "--rotary", "explicit(values=(0.1,))", "--head-dim", "2", "--json")
    single = json.loads(theory(*arguments, "--heads", "1", "--length", "21"))
    keys = ["rotary", "head_dim", "heads", "length", "capability", "certificate", "partition"]
    assert list(single) == keys
    assert single["capability"] == pytest.approx(math.sqrt(2) * math.cos(1.0))
    assert single["certificate"] == pytest.approx(single["capability"], abs=1e-9)
    assert single["partition"] == [[[1, 21]]]

    mixed = "capability", "--rotary", "[[rope(base=10),nope]]", *arguments[3:], "--heads", "2"
    unrotated = json.loads(theory(*mixed, "--length", "21"))["capability"]
    assert unrotated == pytest.approx(math.sqrt(2))  # of the head that does not rotate

    double = json.loads(theory(*arguments, "--heads", "2", "--length", "42"))
    assert list(double) == keys and double["certificate"] is None
    assert double["capability"] == pytest.approx(single["capability"])
    assert sorted(double["partition"]) == [[[1, 21]], [[22, 42]]]


def test_capability_prints_and_draws_its_forecast(tmp_path):
    figure = tmp_path / "capability.svg"
    arguments = ("capability", "--rotary", "rope(base=10)", "--head-dim", "64", "--length", "30")
    out = theory(*arguments, "--others", "31", "--heads", "2", "--out", figure)
    assert "31 other keys needs 2.012: D_H allows L50 > 30 tokens" in out
    assert "</svg>" in figure.read_text()
    result = json.loads(theory(*arguments, "--others", "31", "--json"))
    # The capability of one head is above 2.012 at 26 tokens, and below at 27.
    assert (result["l50"], result["beyond"]) == (26, False)
    assert result["needed"] == pytest.approx(2.012, abs=1e-3)


def test_the_law_of_figure_1():
    """The exponents of two lengths are log2(16,000 / 4,300) and log2(11,587.2 / 4,293.4)."""
    fits = json.loads(theory("table", "--json", "--lengths", "1k", "2k"))["fits"]
    rounded = {name: (round(c, 4), round(p, 3)) for name, (c, p) in fits.items()}
    assert rounded == {"men_2024": (0.0085, 1.896), "high": (0.2094, 1.432)}
