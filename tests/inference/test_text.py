"""Text streams have complete characters, no part of a stop string, and all other text."""

import dataclasses

import pytest

from ropewalk.inference.text import TextStream


@dataclasses.dataclass
class Pieces:
    """A tokenizer with these pieces."""

    piece_bytes: list[bytes]
    adds_space: bool = False


def streamed(pieces: list[bytes], stop=(), **options) -> tuple[list[str], bool]:
    stream = TextStream(Pieces(pieces, options.pop("adds_space", False)), stop, **options)
    parts = [stream.push([i]) for i in range(len(pieces))]
    return [*parts, stream.push([], last=True)], stream.stopped


def test_characters_are_complete():
    assert streamed([b"a", b"\xe2", b"\x82", b"\xac", b"b"])[0] == ["a", "", "", "€", "b", ""]
    # At the end, an incomplete character becomes a replacement character.
    assert streamed([b"a", b"\xe2", b"\x82"])[0] == ["a", "", "", "\ufffd"]


@pytest.mark.parametrize("size", range(1, 8))
def test_stop_string_across_pieces_is_never_emitted(size):
    text = b"one END two"
    parts, stopped = streamed([text[i : i + size] for i in range(0, len(text), size)], ["END"])
    assert "".join(parts) == "one " and stopped


def test_prefix_of_a_stop_string_is_emitted():
    parts, stopped = streamed([b"E", b"N", b"E", b"N", b"E", b"D", b"EN"], ["END"])
    assert "".join(parts) == "ENENEDEN" and not stopped
    # Text is emitted as soon as it cannot begin a stop string.
    assert parts == ["", "", "EN", "", "EN", "ED", "", "EN"]


def test_first_stop_string_in_the_text_ends_it():
    assert "".join(streamed([b"a\nb", b"\n\nc"], ["\n\n", "c", "b\n\n"])[0]) == "a\n"
    assert streamed([b"x"], [])[1] is False


def test_added_space_is_removed_at_the_start_only():
    assert streamed([b" The", b" end"], at_start=True, adds_space=True)[0][:2] == ["The", " end"]
    assert streamed([b" The"], at_start=True)[0][0] == " The"
    assert streamed([b" The"], adds_space=True)[0][0] == " The"


def test_ids_beyond_the_tokenizer_have_no_text():
    stream = TextStream(Pieces([b"a"]), ())
    assert stream.push([0, 7, 0]) == "aa"
