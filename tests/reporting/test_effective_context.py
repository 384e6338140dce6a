"""Theory in the leading figure."""

import numpy as np
import pytest

from ropewalk.model.config import MlaConfig
from ropewalk.reporting.curves import accuracy_panels
from ropewalk.reporting.effective_context import draw_effective_context
from ropewalk.utils.figures import INK
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read

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
