"""Theory in the leading figure."""

import numpy as np
import pytest

from ropewalk.model import rotary
from ropewalk.model.config import MlaConfig
from ropewalk.reporting.curves import accuracy_panels, draw_by_length
from ropewalk.reporting.effective_context import draw_effective_context
from ropewalk.utils.figures import INK
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read
from tests.reporting.overlaps import overlaps

# The unrotated fifth of a head moves the first violation.
LATENT = MlaConfig(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=32, v_head_dim=32)


@pytest.mark.parametrize("model", [{}, {"mla": LATENT, "head_dim": 40}])
def test_the_theory_curve_passes_through_the_marks_of_members(tmp_path, model):
    bases = (10.0, 30.0, 50.0)
    path = make_sweep(tmp_path, [f"base={base:g}" for base in bases])
    for base in bases:
        config = experiment(f"rope(base={base})", model=model)
        make_run(path / f"base={base:g}", config, answers(config, 20, documents=16))
    members = read(path)
    ax = draw_effective_context(members).axes[0]
    drawn = [line for line in ax.get_lines() if line.get_color() == INK]
    (curve,) = [line for line in drawn if len(line.get_xdata()) > 100]
    marks = [line for line in drawn if line.get_marker() == "_"]
    values = {float(line.get_xdata()[0]): float(line.get_ydata()[0]) for line in marks}
    assert values == {member.base: member.theory.first_violation for member in members}
    for base, value in values.items():
        nearest = np.argsort(np.abs(np.log(curve.get_xdata() / base)))[:2]
        assert value in curve.get_ydata()[nearest]


@pytest.mark.parametrize(
    ("extra", "label"), [("nope", "controls"), ("[rope(base=10),nope]", "no single base")]
)
def test_close_bases_trained_lengths_and_controls_have_their_own_labels(tmp_path, extra, label):
    """Half of the members learn nothing: their crosses are below the names."""
    variants = "rope(base=10)", "rope(base=15)", "rope(base=10000)", extra
    for number, variant in enumerate(variants):
        for length in (100, 128):
            model = {"rotary": rotary.parse_pattern(variant)}
            config = experiment("nope", length=length, model=model)
            rows = answers(config, 20 if length == 128 else 0, documents=8)
            make_run(tmp_path / f"{number}-{length}", config, rows)
    figure = draw_effective_context(read(*sorted(tmp_path.iterdir())))
    assert overlaps(figure) == []
    assert figure.axes[-1].get_xlabel() == label


def test_a_cross_of_too_few_answers_does_not_say_that_there_is_no_effective_context(tmp_path):
    """Right at every distance, in four documents."""
    config = experiment("rope(base=10)")
    run = make_run(tmp_path / "run", config, answers(config, 128, documents=4))
    figure = draw_effective_context(read(run.path))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "no effective context,\nor too few answers" in labels


def test_marks_of_many_members_stay_at_their_lengths(tmp_path):
    """The twelfth was once drawn at a length of 87, not 64; a tenth of an octave is 7%."""
    for number in range(12):
        config = experiment(f"rope(base={10 + number})")
        rows = answers(config, 20, length=64) + answers(config, 20)
        make_run(tmp_path / f"{number}", config, rows)
    ax = draw_by_length(read(*tmp_path.iterdir()), "kv").axes[1]
    marks = [line.get_xdata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
    assert len(marks) == 24
    assert all(min(abs(x / 64 - 1), abs(x / 128 - 1)) < 0.072 for x in marks)


def test_titles_name_a_length_that_is_not_the_trained_one(tmp_path):
    config = experiment("rope(base=10)")
    rows = answers(config, 20, length=64) + answers(config, 20, task="lagcopy")
    (member,) = read(make_run(tmp_path / "run", config, rows).path)
    assert [panel.title for panel in accuracy_panels([member])] == [
        "kv\nevaluated at 64",
        "lagcopy",
    ]
    title = draw_effective_context([member]).axes[0].get_title()
    assert title == "Effective context on kv, evaluated at 64"
