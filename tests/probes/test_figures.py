import numpy as np
import pytest

from probes.figures import head_handles


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(1, 2)], ["head 0", "head 1"]),
        ([(1, 1), (2, 2)], ["head 0.0", "head 0.1", "head 1.0", "head 1.1"]),
        ([(3, 3)], []),  # nine heads, eight colours
    ],
)
def test_heads_are_named_as_far_as_colours_tell_them_apart(shapes, expected):
    assert [each.get_label() for each in head_handles(map(np.zeros, shapes))] == expected
