"""Whatever is written for an override, a variant or a task: it is taken, or refused in one line."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ropewalk import evals
from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.config import flatten, to_dict
from ropewalk.model import rotary

TINY = find_config("tiny")
FIELDS = [name for name in flatten(to_dict(TINY)) if not name.endswith("class")]

NUMBERS = ["1e308", "1e400", "-1e400", str(2**64), "9" * 400, "9" * 5000, "0x" + "f" * 5000, "nan"]
DEEP = ["[" * 3000, "[" * 3000 + "]" * 3000, "(" * 3000 + "1" + ")" * 3000, "-" * 5000 + "1"]
KINDS = ["{[]:1}", "{1:{}}", "1j", "...", "b'x'", "'\\d'", "*a", "1if", "\ud800", "\x00", "a\nb"]
SIGNS = st.text("[](){}'\",=.:;-+*/\\e019xnaif _\n\0\udc80", max_size=40)
VALUES = st.one_of(st.sampled_from([*NUMBERS, *DEEP, *KINDS]), SIGNS, st.text(max_size=400))
EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)


def taken_or_refused(make, *arguments) -> None:
    """Runs it: a ValueError of one line, at most 300 characters, is the only one allowed."""
    try:
        make(*arguments)
    except ValueError as error:
        message = str(error)
        assert len(message) <= 300, message
        assert message.isprintable(), message


@EXAMPLES
@given(st.one_of(SIGNS, st.builds("{}={}".format, st.sampled_from(FIELDS), VALUES)))
@example("." * 3000 + "=1")
@example("x" * 5000 + "=1")
@example("evals.lengths=[1152921504606846976]")
@example("model.rotary=" + " " * 90_000 + "x")
@example("evals.tasks=" + "[" * 90_000)
def test_a_whole_override(text):
    taken_or_refused(overrides.apply, TINY, [text])
    taken_or_refused(overrides.grid, [text])


@EXAMPLES
@given(VALUES)
@example(" " * 90_000 + "x")
@example("x" + "," * 99_000)
@example("(" * 99_000)
@pytest.mark.parametrize("parse", [rotary.parse_pattern, evals.parse])
def test_an_expression(parse, text):
    taken_or_refused(parse, text)
    names = "rope", "yarn", "explicit", "longrope", "kv", "needle", "vt"
    for name in names:
        taken_or_refused(parse, f"{name}({text})")
        taken_or_refused(parse, f"{name}(base={text},factor={text},keys={text},values={text})")
