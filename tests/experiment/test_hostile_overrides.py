"""Whatever is written for an override, a variant or a task: it is taken, or refused in one line."""

import itertools

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
WORDS = st.sampled_from(["rope", "nope", "yarn", "kv", "needle", "base", "10", "none", "true"])
VALUES = st.one_of(
    st.sampled_from([*NUMBERS, *DEEP, *KINDS]),
    SIGNS,
    st.text(max_size=400),
    st.recursive(
        st.one_of(WORDS, st.integers().map(str), st.floats().map(str), st.sampled_from(KINDS)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).map(lambda parts: f"[{','.join(parts)}]"),
            st.tuples(WORDS, WORDS, inner).map(lambda parts: "{}({}={})".format(*parts)),
            st.tuples(inner, inner).map(lambda parts: "{0}={1},{0}".format(*parts)),
        ),
    ),
)
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
@given(st.sampled_from(FIELDS), VALUES)
def test_a_field(field, value):
    taken_or_refused(overrides.apply, TINY, [f"{field}={value}"])


def test_every_field():
    for value, field in itertools.product([*NUMBERS, *DEEP, *KINDS, "(1,{[]:1})"], FIELDS):
        taken_or_refused(overrides.apply, TINY, [f"{field}={value}"])


@EXAMPLES
@given(st.one_of(SIGNS, st.text(max_size=400), st.just("." * 3000 + "=1"), st.just("x" * 5000)))
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


def test_quotes_in_brackets_hold_no_brackets():
    assert len(overrides.grid(["data.retrieval_tasks=pg19(path='a(b'),kv"])) == 2
