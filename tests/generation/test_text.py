"""Text while it comes: whole characters, nothing of a stop string, all of the rest."""

import dataclasses
import itertools

import pytest

from generation.text import TextStream


@dataclasses.dataclass
class Pieces:
    """A tokenizer of these pieces."""

    piece_bytes: list[bytes]
    adds_space: bool = False


def streamed(pieces: list[bytes], stop=(), **options) -> tuple[list[str], bool]:
    stream = TextStream(Pieces(pieces, options.pop("adds_space", False)), stop, **options)
    given = [stream.push([i]) for i in range(len(pieces))]
    return [*given, stream.push([], last=True)], stream.stopped


def test_a_character_of_several_ids_comes_whole():
    assert streamed([b"a", b"\xe2", b"\x82", b"\xac", b"b"])[0] == ["a", "", "", "€", "b", ""]
    # What never becomes one is shown as broken, at the end.
    assert streamed([b"a", b"\xe2", b"\x82"])[0] == ["a", "", "", "\ufffd"]


@pytest.mark.parametrize("sizes", itertools.product((1, 2, 3), repeat=3))
def test_a_stop_string_across_pieces_is_never_seen(sizes):
    text, pieces = b"one END two", []
    for size in itertools.cycle(sizes):
        if not text:
            break
        pieces.append(text[:size])
        text = text[size:]
    given, stopped = streamed(pieces, ["END"])
    assert "".join(given) == "one " and stopped


def test_what_only_began_like_a_stop_string_is_text():
    given, stopped = streamed([b"E", b"N", b"E", b"N", b"E", b"D", b"EN"], ["END"])
    assert "".join(given) == "ENENEDEN" and not stopped
    # As soon as it cannot be one any more.
    assert given == ["", "", "EN", "", "EN", "ED", "", "EN"]


def test_of_several_stop_strings_the_first_in_the_text():
    assert "".join(streamed([b"a\nb", b"\n\nc"], ["\n\n", "c", "b\n\n"])[0]) == "a\n"
    assert streamed([b"x"], [])[1] is False


def test_a_made_up_space_goes_only_where_a_text_starts():
    assert streamed([b" The", b" end"], at_start=True, adds_space=True)[0][:2] == ["The", " end"]
    assert streamed([b" The"], at_start=True)[0][0] == " The"
    assert streamed([b" The"], adds_space=True)[0][0] == " The"


def test_ids_beyond_the_tokenizer_stand_for_nothing():
    stream = TextStream(Pieces([b"a"]), ())
    assert stream.push([0, 7, 0]) == "aa"
