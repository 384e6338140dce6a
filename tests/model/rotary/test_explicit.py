"""An explicit vector is its own reference: what goes in comes out, and a run keeps the numbers."""

import json

import numpy as np
import pytest

from experiment.config import from_dict, to_dict
from model.rotary import expression, parse
from model.rotary.explicit import Explicit

VALUES = (1.0, 0.3, 0.1, 0.0)


def test_the_numbers_are_the_frequencies():
    np.testing.assert_array_equal(Explicit(values=VALUES).inv_freq(8), VALUES)
    assert Explicit(values=np.array(VALUES)) == Explicit(values=VALUES)  # type: ignore[arg-type]
    padded = Explicit(values=VALUES, rotary_fraction=0.5).inv_freq(16)
    np.testing.assert_array_equal(padded, VALUES + 4 * (0.0,))


@pytest.mark.parametrize("name", ["own.npy", "own.json", "shown.json"])
def test_a_file_is_read_once_and_its_numbers_are_kept(tmp_path, name):
    path = tmp_path / name
    if name == "own.npy":
        np.save(path, np.array(VALUES))
    else:
        content = {"inv_freq": VALUES, "logit_scale": 1.0} if name == "shown.json" else VALUES
        path.write_text(json.dumps(content))
    variant = parse(f"explicit(file={str(path)!r})")
    path.unlink()
    assert variant == Explicit(values=VALUES)
    assert expression(variant) == "explicit(values=(1.0, 0.3, 0.1, 0.0))"
    recorded = json.loads(json.dumps(to_dict(variant)))
    assert recorded["values"] == [1.0, 0.3, 0.1, 0.0]
    assert from_dict(recorded) == variant


def test_float32_files_are_taken_exactly(tmp_path):
    np.save(tmp_path / "own.npy", np.array([1, 1 / 3], np.float32))
    variant = Explicit(file=str(tmp_path / "own.npy"))
    assert variant.values == (1.0, 0.3333333432674408)


def test_a_list_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="Explicit has 4 frequencies; rotary_dim=64 needs 32"):
        Explicit(values=VALUES).inv_freq(64)


@pytest.mark.parametrize(
    "text, message",
    [
        ("explicit", "explicit needs one of values="),
        ("explicit(values=(1.0,),file='a.npy')", "explicit needs one of values="),
        ("explicit(values=(1.0,-0.1))", "values must be a finite number of at least 0, got -0.1"),
        ("explicit(values=(1.0,'a'))", "values must be a finite number of at least 0, got 'a'"),
        ("explicit(values=(1.0,1e999))", "values must be a finite number of at least 0, got inf"),
        ("explicit(values=1.0)", "values must be a tuple, got 1.0"),
        ("explicit(file='missing.npy')", "file='missing.npy' cannot be read: FileNotFoundError"),
        ("explicit(file='own.txt')", "file='own.txt' must end in .npy or .json"),
        ("explicit(file=3)", "file must be a string, got 3"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.json", "{", "cannot be read: JSONDecodeError"),
        ("a.json", '{"freqs": [1]}', "cannot be read: KeyError('inv_freq')"),
        ("a.json", "[[1.0, 0.5]]", "must be a finite number of at least 0, got [1.0, 0.5]"),
        ("a.json", "[]", "holds no numbers"),
        ("a.npy", "text", "cannot be read: ValueError"),
    ],
)
def test_files_that_hold_no_vector(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as caught:
        Explicit(file=str(tmp_path / name))
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
