import pytest

from probes.figures import head_handles


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(1, 2)], ["head 0", "head 1"]),
        ([(1, 1), (2, 2)], ["head 0.0", "head 0.1", "head 1.0", "head 1.1"]),
        ([(3, 3)], []),  # nine heads, eight colors
    ],
)
def test_heads_are_named_unless_there_are_more_than_colors(shapes, expected):
    assert [handle.get_label() for handle in head_handles(shapes)] == expected
