"""Fields outside their type hints are refused, by name and with what would do."""

import dataclasses
from typing import Annotated, Literal

import pytest

from ropewalk.utils.checks import Bounds, Count, Share, check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """One field of every kind that is checked."""

    word: Literal["off", "train"] = "off"
    words: tuple[Literal["tensorboard", "wandb"], ...] = ()
    count: Count = 1
    share: Share = 0.5
    open_low: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    maybe: Count | None = None
    either: Count | tuple[Count | None, ...] | None = None
    pairs: tuple[tuple[str, Share], ...] = ()
    flag: bool = False

    def __post_init__(self):
        check(self)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("word", "trian", "word must be one of .*, got 'trian'; did you mean 'train'?"),
        ("words", ("wandb", "tensorbord"), "did you mean 'tensorboard'?"),
        ("count", 0, "count must be a whole number of at least 1, got 0"),
        ("count", 1.5, "got 1.5"),
        ("count", 2**63, "of at least 1, got 9223372036854775808"),
        ("count", True, "got True"),
        ("share", 1.1, r"share must be a finite number in \[0, 1\], got 1.1"),
        ("share", float("nan"), "got nan"),
        ("open_low", 0.0, r"in \(0, 1\], got 0.0"),
        ("maybe", -1, "got -1"),
        ("either", (4, 0), "either must be"),
        ("pairs", (("github", 2.0),), "got 2.0"),
        ("flag", "yes", "True or False, got 'yes'"),
    ],
)
def test_what_a_hint_excludes_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        Sample(**{field: value})


def test_what_a_hint_admits_is_taken():
    sample = Sample(word="train", words=["wandb"], count=2.0, either=(4, None), share=1)
    assert (sample.words, repr(sample.count), sample.either) == (("wandb",), "2", (4, None))
    assert Sample(either=7, pairs=(("github", 0.5),)).either == 7
