"""Quotes in errors are cut, and stay one line."""

import pytest

from ropewalk.utils.messages import one_line, printable, quoted


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "x" * 10_000, "\x00\x1b[31m\ud800", "\n" * 999])
def test_a_message_is_one_line_that_can_be_printed(text):
    line = one_line(text)
    assert len(line) <= 300 and line.isprintable() and line.splitlines() in ([line], [])


def test_what_is_cut_is_the_middle():
    line = one_line("wrong: " + "x" * 5000 + "; use that")
    assert line.startswith("wrong: ") and line.endswith("; use that") and " ... " in line
    assert one_line("as it stands, with  two spaces") == "as it stands, with  two spaces"


def test_control_characters_become_escapes():
    text = "a\tb\n\x1b]0;title\x07 é 漢 \u202egpj.exe \r\x9b2J\ud800"
    assert printable(text) == "a\tb\n" + r"\x1b]0;title\x07 é 漢 \u202egpj.exe \r\x9b2J\ud800"


def test_any_value_can_be_quoted():
    deep: list = []
    for _ in range(100_000):  # deeper than Python's stack
        deep = [deep]
    for value in ("x" * 99, 16**9999, deep, "\n", b"\xff" * 99):
        assert len(quoted(value)) <= 60 and quoted(value).isprintable()
    assert quoted("kv") == "'kv'"
