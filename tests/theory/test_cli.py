import argparse
import dataclasses
import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from configs import find_config
from experiment.run import RunDirectory
from model.rotary.nope import Nope
from model.rotary.rope import Rope
from theory.__main__ import main
from utils.command_line import token_list, tokens

ROOT = Path(__file__).parents[2]


@pytest.fixture
def theory(monkeypatch, capsys):
    """Return a function that runs the command in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["theory", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def test_the_module_prints_only_the_number():
    command = [sys.executable, "-m", "theory", "length", "--base", "10000", "--head-dim", "128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1707\n", "")


def test_json_is_one_object(theory):
    code, out, err = theory("length", "--base", "1e4", "--head-dim", "64", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "rotary": "rope(base=10000)",
        "head_dim": 64,
        "first_violation": 725,
        "checked_up_to": 725,
    }


def test_any_variant_by_its_expression(theory):
    """Interpolation by 4 divides every distance by 4: 4 * 724 < m <= 4 * 725."""
    expression = "position_interpolation(base=1e4,factor=4)"
    code, out, _ = theory("length", "--rotary", expression, "--head-dim", "64")
    assert code == 0
    assert 4 * 724 < int(out) <= 4 * 725


def test_no_violation_prints_a_bound(theory):
    assert theory("length", "--rotary", "nope", "--head-dim", "64")[1] == "> 2147483647\n"
    out = theory("length", "--base", "1e4", "--head-dim", "64", "--limit", "725", "--json")[1]
    assert json.loads(out)["first_violation"] is None
    assert json.loads(out)["checked_up_to"] == 724


def test_lengths_in_powers_of_two():
    assert [tokens(text) for text in ("131072", "128k", "1M", "0.5k")] == [2**17, 2**17, 2**20, 512]
    assert token_list("1e3,4k") == [1000, 4096]
    for text in ("", "k", "1.0001k", "1e400", "12x", "nan"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of tokens"):
            tokens(text)


def test_length_of_a_run_has_every_layer(theory, tmp_path):
    """46 and 725 are the first violations of bases 100 and 1e4 at 64 features."""
    config = find_config("tiny")
    layers = (Rope(base=100.0), Rope(base=1e4), Nope())
    for name, rotary, reach in (
        ("plain", layers[0], 46),
        ("two", layers[:2], 725),
        ("mixed", layers, None),
    ):
        model = dataclasses.replace(
            config.model, rotary=rotary, head_dim=64, num_layers=6, mla=None, window=None
        )
        run = RunDirectory(tmp_path / name)
        run.write_config(dataclasses.replace(config, model=model), [])
        code, out, _ = theory("length", str(run.path), "--json")
        assert code == 0
        result = json.loads(out)
        assert result["first_violation"] == reach
        assert result["checked_up_to"] == (reach or 2**31 - 1)
    assert result["layers"] == [46, 725, None] * 2
    lines = theory("length", str(tmp_path / "mixed"))[1].splitlines()
    assert lines[1:3] == ["layer 1: 725", "layer 2: > 2147483647"]
    assert theory("length", str(tmp_path / "plain"))[1] == "46\n"


def test_bound_prints_exactly_its_keys(theory):
    code, out, err = theory("bound", "--length", "1k", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert list(result) == ["length", "head_dim", "rotary_fraction", "low", "high"]
    assert (result["length"], result["head_dim"], result["rotary_fraction"]) == (1024, 128, 1.0)
    assert 4293.43 < result["low"] < result["high"] < 4293.45  # Su 2024: 4.3e3

    more = json.loads(theory("bound", "--length", "1k", "--json", "--stable", "--intervals")[1])
    assert list(more) == [*result, "stable", "intervals"]
    assert more["intervals"][0][0] == result["high"]
    assert more["intervals"][-1][0] == pytest.approx(more["stable"], rel=1e-8)
    assert more["intervals"][-1][1] is None


def test_rounded_bounds_are_feasible(theory):
    """The published two digits, 1.2e4 at 2048 and 2.7e4 at 4096, are infeasible themselves."""
    for length, published, typed in (("2048", "1.2e4", "1.16e4"), ("4096", "2.7e4", "2.696e4")):
        assert int(theory("length", "--base", published)[1]) < int(length)
        assert int(theory("length", "--base", typed)[1]) >= int(length)
        out = theory("bound", "--length", length)[1]
        assert f"rounded up: {typed.replace('e4', 'e+04')} " in out
    # Rounding stays within five percent, so not 1.1.
    assert "rounded up: 1.01 " in theory("bound", "--length", "2k", "--rotary-fraction", "0.5")[1]


def test_bound_of_another_variant(theory):
    """A factor 4 below what plain RoPE needs: NTK raises the base by 4^(64/62)."""
    plain = json.loads(theory("bound", "--length", "700", "--head-dim", "64", "--json")[1])
    arguments = ("bound", "--length", "700", "--head-dim", "64", "--json", "--rotary")
    ntk = json.loads(theory(*arguments, "ntk_aware(base=?,factor=4)")[1])
    assert ntk["high"] * 4 ** (64 / 62) == pytest.approx(plain["high"], rel=1e-8)
    assert ntk["open"] == "base"
    yarn = "yarn(base=1e4,factor=?,original_context_length=512)"
    assert json.loads(theory(*arguments, yarn)[1])["open"] == "factor"


def test_the_table_compares_with_the_papers(theory, tmp_path):
    """Men et al. print 1.6e4 at 2k: 1.6e4 / 11587.24 - 1 = 38%."""
    figure = tmp_path / "table.svg"
    arguments = ("table", "--lengths", "1k", "2k", "4k")
    rows = json.loads(theory(*arguments, "--json", "--figure", str(figure))[1])["rows"]
    assert [row["length"] for row in rows] == [1024, 2048, 4096]
    assert rows[1]["men_above_ours"] == pytest.approx(0.381, abs=1e-3)
    assert all(row["su_agrees"] for row in rows)
    assert "</svg>" in figure.read_text()
    text = theory(*arguments)[1]
    assert "+38%" in text and text.count("the same") == 2


def test_models(theory):
    models = json.loads(theory("models", "--json")[1])["models"]
    result = {(model["model"], model["kind"].removesuffix("_attention")): model for model in models}
    assert result["llama-2-7b", "full"]["first_violation"] == 1707
    assert result["mistral-7b-v0.2", "full"]["first_violation"] == 27115
    # Heads rotated by a quarter, and layers without rotation, have no violation.
    for name in ("gpt-neox-20b", "deepseek-v3", "smollm3-3b"):
        assert result[name, "full"]["first_violation"] is None and result[name, "full"]["covers"]
    # Liu et al.: 92 of Llama 2's 128 features complete a turn within 4096 tokens.
    assert result["llama-2-7b", "full"]["critical_dimension"] == 92
    assert not result["llama-2-7b", "full"]["covers"] and result["llama-3-8b", "full"]["covers"]
    only = theory("models", "llama-3-8b")[1]
    assert "llama-3-8b" in only and "llama-2-7b" not in only
    code, _, err = theory("models", "lama-3-8b")
    assert code == 2 and "did you mean 'llama-3-8b'?" in err


def test_curves_are_drawn(theory, tmp_path):
    figure = tmp_path / "b.png"
    arguments = ("curve", "--base", "100,1e4", "--rotary", "nope", "--head-dim", "64")
    code, out, _ = theory(*arguments, "--length", "1k", "--out", str(figure), "--json")
    firsts = {"rope(base=100)": 46, "rope(base=10000)": 725, "nope": None}
    assert code == 0 and json.loads(out)["first_violation"] == firsts
    assert figure.read_bytes().startswith(b"\x89PNG\r\n")
    assert theory("curve")[0] == 2
    assert theory("curve", "--base", "10", "--out", "b.xyz")[0] == 2


def test_capability_prints_exactly_its_keys(theory):
    """√2 cos((M - 1) ω / 2) for one pair; two heads have half of the distances each."""
    arguments = ("capability", "--rotary", "explicit(values=(0.1,))", "--head-dim", "2", "--json")
    code, out, err = theory(*arguments, "--heads", "1", "--length", "21")
    assert (code, err) == (0, "")
    single = json.loads(out)
    keys = ["rotary", "head_dim", "heads", "length", "capability", "certificate", "partition"]
    assert list(single) == keys
    assert single["capability"] == pytest.approx(math.sqrt(2) * math.cos(1.0))
    assert single["certificate"] == pytest.approx(single["capability"], abs=1e-9)
    assert single["partition"] == [[[1, 21]]]

    double = json.loads(theory(*arguments, "--heads", "2", "--length", "42")[1])
    assert list(double) == keys and double["certificate"] is None
    assert double["capability"] == pytest.approx(single["capability"])
    assert sorted(double["partition"]) == [[[1, 21]], [[22, 42]]]


def test_capability_prints_and_draws_its_forecast(theory, tmp_path):
    figure = tmp_path / "capability.svg"
    arguments = ("capability", "--rotary", "rope(base=10)", "--head-dim", "64", "--length", "30")
    code, out, _ = theory(*arguments, "--others", "31", "--heads", "2", "--out", str(figure))
    assert code == 0 and "31 other keys needs 2.012: L50 > 30 tokens" in out
    assert "  head 1: " in out
    assert "</svg>" in figure.read_text()
    result = json.loads(theory(*arguments, "--others", "31", "--json")[1])
    # The capability of one head is above 2.012 at 26 tokens, and below at 27.
    assert (result["forecast"], result["beyond"]) == (26, False)
    assert result["needed"] == pytest.approx(2.012, abs=1e-3)


def test_capability_of_layers_is_that_of_the_best(theory, tmp_path):
    pattern = "[rope(base=10),[rope(base=10),nope],rope(base=100)]"
    arguments = ("--rotary", pattern, "--heads", "2", "--head-dim", "64", "--length", "30")
    result = json.loads(theory("capability", *arguments, "--json")[1])
    values = [layer["capability"] for layer in result["layers"]]
    assert result["capability"] == max(values) == values[1] == pytest.approx(8)
    assert result["partition"] == [[], [[1, 30]]]
    assert "layer 2: " in theory("capability", *arguments)[1]

    config = find_config("tiny")
    model = dataclasses.replace(config.model, rotary=Rope(base=10.0), num_layers=2)
    run = RunDirectory(tmp_path / "run")
    run.write_config(dataclasses.replace(config, model=model), [])
    of_run = json.loads(theory("capability", str(run.path), "--length", "9", "--json")[1])
    head_dim, heads = str(model.head_dim), str(model.num_heads)
    arguments = ("--rotary", "rope(base=10)", "--head-dim", head_dim, "--heads", heads)
    same = json.loads(theory("capability", *arguments, "--length", "9", "--json")[1])
    assert of_run["heads"] == model.num_heads and len(of_run["layers"]) == 2
    assert of_run["capability"] == same["capability"]


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["nope", "0"], "--heads must be at least 1, got 0"),
        (
            ["rope(base=10)", "1", "--length", "0"],
            "must lie within 1 and 131072 tokens, got 1 to 0",
        ),
        (["rope(base=10)", "1", "--others", "0"], "num_others must be at least 1 key, got 0"),
        (["[[nope,nope]]", "1"], "a pattern of 2 does not fit num_kv_heads=1"),
        (["yarm", "1"], "unknown rotary variant 'yarm'"),
        (["nope", "1", "--out", "x.xyz"], "take a .png, .svg or .pdf file, got x.xyz"),
    ],
)
def test_errors_of_capability_exit_2_with_one_line(theory, arguments, reason):
    expression, heads, *more = arguments
    options = ["--length", "3", "--rotary", expression, "--heads", heads, *more]
    code, out, err = theory("capability", *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert reason in err


@pytest.mark.slow
def test_128k_takes_seconds():
    """Start-up included; CPU time, so that a busy machine does not matter."""
    command = [sys.executable, "-m", "theory", "bound", "--length", "131072", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    result = json.loads(done.stdout)
    assert 4.85e6 < result["low"] < result["high"] <= result["low"] * (1 + 1e-8) < 4.95e6


def test_length_of_a_fraction_is_that_of_the_expression(theory):
    # The unrotated half of the pairs outweighs the other half: B_m >= 0 everywhere.
    code, out, _ = theory("length", "--base", "100", "--rotary-fraction", "0.5", "--json")
    assert code == 0 and json.loads(out)["first_violation"] is None
    _, plain, _ = theory("length", "--base", "100", "--rotary-fraction", "0.75")
    _, written, _ = theory("length", "--rotary", "rope(base=100,rotary_fraction=0.75)")
    assert plain == written and int(plain) > 59  # 59 where all pairs of 128 turn
    code, _, err = theory("length", "--rotary", "nope", "--rotary-fraction", "0.5")
    assert code == 2 and "in the expression" in err
