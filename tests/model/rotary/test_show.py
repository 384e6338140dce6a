"""`ropewalk theory show`: facts of known variants, and mistakes on one line."""

import functools
import json

import numpy as np
import pytest

from ropewalk.model.rotary import parse
from tests.in_process import call

show = functools.partial(call, "-m", "theory", "show")


def test_plain_rope_at_4096_tokens():
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


@pytest.mark.parametrize(
    ("variant", "new", "incomplete"),
    [  # 64 - ⌈64 ln(L / 2π) / ln b⌉ pairs at 4,096 and 32,768 tokens
        ("rope(base=1e4)", 18, 4),
        ("ntk_aware(base=1e4,factor=8)", 27, 15),
        ("rope(base=500)", 0, 0),
        ("nope", 0, 0),
    ],
)
def test_pairs_that_meet_new_angles_in_a_longer_context(variant, new, incomplete, tmp_path):
    """Men et al. 2024, Figure 2, draws the slowest of them."""
    figure = tmp_path / "figure.svg"
    out = show(variant, "--length", "4k,32k", "--plot", figure)
    assert f"from 4,096 to 32,768 tokens: {new} of 64 pairs meet new angles" in out
    assert f"and {incomplete} of them complete no cycle within 32,768" in out
    assert "slowest pair" in figure.read_text()
    assert "not a length, or two that ascend" in show(variant, "--length", "4k,4k", status=2)


def test_bands_of_yarn():
    """4096 tokens at base 10,000: 32 turns end the kept pairs at 20, one turn the ramp at 46."""
    text = "yarn(base=1e4,factor=8,original_context_length=4096)"
    report = json.loads(show(text, "--json"))
    assert report["bands"] == 21 * ["kept"] + 25 * ["ramp"] + 18 * ["interpolated"]
    assert report["stretch"][:21] == pytest.approx(21 * [1.0])
    assert report["stretch"][46:] == pytest.approx(18 * [8.0])
    assert report["logit_scale"] == pytest.approx(1.2079441541679836**2)


def test_explicit_zeros_do_not_rotate_and_negative_frequencies_rotate_backwards():
    """Two of four pairs rotate: one cycle is 2π tokens, and 8π in the other direction."""
    report = json.loads(show("explicit(values=(1.0,0.0,0.25,0.0))", "--head-dim", "8", "--json"))
    assert report["rotary_dim"] == 4
    values = "values=(1.0,-0.25,0.0),name='learned'"
    report = json.loads(show(f"recorded({values})", "--head-dim", "6", "--length", "20", "--json"))
    assert report["rotary_dim"] == 4
    assert report["wavelength"][:2] == pytest.approx([2 * np.pi, 8 * np.pi])
    assert report["turns"] == pytest.approx([20 / (2 * np.pi), 20 / (8 * np.pi), 0])
    assert any(line.startswith("1 of 3 pairs (1 to 1) never") for line in report["warnings"])


def test_features_that_mla_never_rotates_count():
    """Eight of 12 pairs do not turn, so no sum of cosines is negative."""
    report = json.loads(show("mla_tiny", "--length", "4096", "--json"))
    assert [frequency > 0 for frequency in report["inv_freq"]] == 4 * [True] + 8 * [False]
    assert (report["head_dim"], report["first_negative"]) == (24, None)


def test_what_is_shown_can_be_trained_with(tmp_path):
    file = tmp_path / "shown.json"
    file.write_text(show("ntk_mixed(base=500,factor=4)", "--head-dim", "64", "--json"))
    explicit = parse(f"explicit(file={str(file)!r})")
    original = parse("ntk_mixed(base=500,factor=4)")
    np.testing.assert_array_equal(explicit.inv_freq(64), original.inv_freq(64))
