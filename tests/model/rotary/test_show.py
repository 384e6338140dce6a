"""`python -m model.rotary show`: facts of known variants, and mistakes on one line."""

import json
import sys

import numpy as np
import pytest

from model.rotary import parse
from theory import show as command
from theory.show import Head, make_report


def report_on(text: str, dim: int, length: int, num_unrotated: int = 0):
    head = Head(dim=dim, length=length, num_unrotated=num_unrotated)
    return make_report(parse(text), head)


@pytest.fixture
def show(monkeypatch, capsys):
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["rotary", "show", *arguments])
        command.main()
        return capsys.readouterr().out

    return run


def test_plain_rope_at_4096_tokens(show):
    """2π 10^(4·45/64) is 4080 tokens, the last whole turn; 1707 is the bound at base 10,000."""
    report = json.loads(show("rope(base=1e4)", "--json"))
    assert report["name"] == "rope(base=10000)"
    assert (report["head_dim"], report["length"], report["rotary_dim"]) == (128, 4096, 128)
    assert report["logit_scale"] == 1.0
    assert report["inv_freq"][32] == pytest.approx(0.01, rel=1e-14)
    assert report["wavelength"][32] == pytest.approx(628.3185307179587, rel=1e-14)
    assert report["turns"][0] == pytest.approx(651.8986469044033, rel=1e-14)
    assert report["bands"] == 64 * ["kept"]
    assert report["first_negative"] == 1707
    slow, short = report["warnings"]
    assert slow.startswith("18 of 64 pairs (46 to 63) never complete a cycle within 4096 tokens")
    assert short.startswith("the sum of cosines is negative at distance 1707, within 4096 tokens")


def test_a_context_within_the_bound_is_not_warned_of(show):
    """1707 tokens have no distance of 1707; pair 39, 2π 10^(4·39/64), takes 1721 for a turn."""
    report = json.loads(show("rope(base=1e4)", "--length", "1707", "--json"))
    assert report["first_negative"] is None
    (slow,) = report["warnings"]
    assert slow.startswith("25 of 64 pairs (39 to 63) never complete a cycle within 1707 tokens")
    assert (
        json.loads(show("rope(base=1e4)", "--length", "1708", "--json"))["first_negative"] == 1707
    )


def test_bands_of_yarn(show):
    """4096 tokens at base 10,000: 32 turns end the kept pairs at 20, one turn the ramp at 46."""
    text = "yarn(base=1e4,factor=8,original_context_length=4096)"
    report = json.loads(show(text, "--json"))
    assert report["bands"] == 21 * ["kept"] + 25 * ["ramp"] + 18 * ["interpolated"]
    assert report["stretch"][:21] == pytest.approx(21 * [1.0])
    assert report["stretch"][46:] == pytest.approx(18 * [8.0])
    assert report["logit_scale"] == pytest.approx(1.2079441541679836**2)


@pytest.mark.parametrize(
    "text, bands",
    [
        ("nope", ["unrotated"] * 4),
        ("rope(base=10,rotary_fraction=0.5)", ["kept", "kept", "unrotated", "unrotated"]),
        ("p_rope(base=10,rotary_fraction=0.5)", ["kept", "kept", "unrotated", "unrotated"]),
        ("position_interpolation(base=10,factor=2)", ["interpolated"] * 4),
        ("position_interpolation(base=10,factor=1)", ["kept"] * 4),
        ("ntk_aware(base=10,factor=2)", ["kept", "ramp", "ramp", "interpolated"]),
        ("explicit(values=(1,.5,.1,0))", ["", "", "", "unrotated"]),
        (
            "longrope(base=9,pair_factors=(1,2,4,9),original_context_length=8,target_context_length=32)",
            ["kept", "ramp", "interpolated", "interpolated"],
        ),
    ],
)
def test_bands(text, bands):
    report = report_on(text, 8, 16)
    assert report.bands == bands


def test_what_does_not_turn(show):
    report = json.loads(show("nope()", "--head-dim", "8", "--json"))
    assert report["inv_freq"] == [0.0] * 4
    assert report["wavelength"] == [None] * 4
    assert (report["rotary_dim"], report["first_negative"], report["warnings"]) == (0, None, [])


def test_pairs_that_a_variant_never_sees_count_as_ones():
    """MLA's: four unrotated pairs outweigh four rotated ones: the sum is never negative."""
    assert report_on("rope(base=10)", 8, 64).first_negative is not None
    latent = report_on("rope(base=10)", 8, 64, num_unrotated=8)
    assert latent.first_negative is None
    assert (latent.head_dim, latent.rotary_dim) == (16, 8)
    assert latent.bands == ["kept"] * 4 + ["unrotated"] * 4


def test_what_is_shown_can_be_trained_with(show, tmp_path):
    file = tmp_path / "shown.json"
    file.write_text(show("ntk_mixed(base=500,factor=4)", "--head-dim", "64", "--json"))
    explicit = parse(f"explicit(file={str(file)!r})")
    original = parse("ntk_mixed(base=500,factor=4)")
    np.testing.assert_array_equal(explicit.inv_freq(64), original.inv_freq(64))
