"""An explicit vector returns the given numbers, and a run records them."""

import json

import numpy as np
import pytest

from ropewalk.experiment.config import from_dict, to_dict
from ropewalk.model.rotary import expression, parse
from ropewalk.model.rotary.explicit import Explicit

VALUES = (1.0, 0.3, 0.1, 0.0)


def test_the_numbers_are_the_frequencies():
    np.testing.assert_array_equal(Explicit(values=VALUES).inv_freq(8), VALUES)
    assert Explicit(values=np.array(VALUES)) == Explicit(values=VALUES)  # type: ignore[arg-type]
    padded = Explicit(values=VALUES, rotary_fraction=0.5).inv_freq(16)
    np.testing.assert_array_equal(padded, VALUES + 4 * (0.0,))


@pytest.mark.parametrize("name", ["own.npy", "own.json", "shown.json"])
def test_a_file_is_read_once_and_its_numbers_are_kept(tmp_path, name):
    path, values = tmp_path / name, (1.0, 0.3333333432674408)
    if name == "own.npy":
        np.save(path, np.array([1, 1 / 3], np.float32))
    else:
        content = {"inv_freq": values, "logit_scale": 1.0} if name == "shown.json" else values
        path.write_text(json.dumps(content))
    variant = parse(f"explicit(file={str(path)!r})")
    path.unlink()
    assert variant == Explicit(values=values)
    recorded = json.loads(json.dumps(to_dict(variant)))
    assert recorded["values"] == list(values) and from_dict(recorded) == variant
    assert expression(variant) == f"explicit(values={values})"
