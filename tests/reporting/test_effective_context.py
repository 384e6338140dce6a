"""The leading figure: a row per member, theory and measurement; its title says what they show."""

import pytest

from ropewalk.reporting.curves import ACCURACY, accuracy_panels, draw
from ropewalk.reporting.effective_context import draw_effective_context
from ropewalk.utils.figures import INK
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read


def sweep(path, reaches):
    """Return the members of bases that recall this far."""
    make_sweep(path, [f"base={base:g}" for base in reaches])
    for base, reach in reaches.items():
        config = experiment(f"rope(base={base})")
        make_run(path / f"base={base:g}", config, answers(config, reach))
    return read(path)


def title(figure) -> str:
    return figure.get_suptitle().replace("\n", " ")


def test_ticks_are_theory_lengths(tmp_path):
    """B_m < 0 first at 5, 17 and 46 tokens; at 725 for base 1e4; the axis ends at 1,024."""
    members = sweep(tmp_path, {10.0: 20, 30.0: 60, 100.0: 100, 10000.0: 1000, 1e6: 1000})
    (ax,) = draw_effective_context(members).axes
    ticks = [line for line in ax.get_lines() if line.get_marker() == "|"]
    assert [float(line.get_xdata()[0]) for line in ticks] == [5, 17, 46, 725]
    assert {line.get_color() for line in ticks} == {INK}
    assert any("theory" in text.get_text() for text in ax.texts)  # base 1e6, beyond the axis
    assert [label.get_text() for label in ax.get_yticklabels()] == [m.words for m in members]


@pytest.mark.parametrize(
    ("reaches", "text"),
    [
        ({10.0: 20, 1e4: 1000}, "Recall on kv ends earlier with a smaller base"),
        ({10.0: 1000, 1e4: 20}, "Recall on kv ends later with a smaller base"),
        ({10.0: 20, 1e4: 20}, "How far members recall on kv"),
        ({10.0: 20}, "How far members recall on kv"),
    ],
)
def test_titles_say_what_a_smaller_base_does(tmp_path, reaches, text):
    members = sweep(tmp_path, reaches)
    assert title(draw_effective_context(members)) == text


def test_titles_name_a_length_that_is_not_the_trained_one(tmp_path):
    config = experiment("rope(base=10)")
    rows = answers(config, 20, length=64) + answers(config, 20, task="lagcopy")
    (member,) = read(make_run(tmp_path / "run", config, rows).path)
    panels = accuracy_panels([member])
    assert [panel.title for panel in panels] == ["kv\nevaluated at 64", "lagcopy"]
    assert title(draw_effective_context([member])).endswith("on kv, evaluated at 64")


def test_a_legend_names_only_marks_that_are_drawn(tmp_path):
    """All is recalled, so no effective context lies on a curve."""
    members = sweep(tmp_path, {10.0: 1000})
    figure = draw(members, ACCURACY, accuracy_panels(members))
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "effective context" not in names and any("theory" in name for name in names)
