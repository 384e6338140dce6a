"""Text streams have complete characters, no part of a stop string, and all other text."""

from types import SimpleNamespace
from typing import Any

import pytest

from ropewalk.evals.generation.options import Options
from ropewalk.evals.generation.text import TextStream

EOS, BOS = 98, 99


def tokenizer_of(pieces: list[bytes], adds_space: bool = False) -> Any:
    """Return what a stream reads of a tokenizer with these pieces."""
    ids = dict(eos_id=EOS, bos_id=BOS, stop_ids=())
    return SimpleNamespace(piece_bytes=pieces, adds_space=adds_space, **ids)


def streamed(
    pieces: list[bytes], *stop: str, prompt=(BOS, 0), adds_space=False
) -> tuple[list[str], str]:
    """Return what each id and the end of the text add, and why it ended."""
    parts, emitted, tokenizer = [], [], tokenizer_of(pieces, adds_space)
    stream = TextStream(prompt, tokenizer, Options(stop=stop), emitted.append)
    for i in (*range(len(pieces)), EOS):
        emitted.clear()
        stream.add([i])
        parts.append("".join(emitted))
    return parts, stream.generated.finish


def test_characters_are_complete():
    assert streamed([b"a", b"\xe2", b"\x82", b"\xac", b"b"])[0] == ["a", "", "", "€", "b", ""]
    # At the end, an incomplete character becomes a replacement character.
    assert streamed([b"a", b"\xe2", b"\x82"])[0] == ["a", "", "", "\ufffd"]


@pytest.mark.parametrize("size", range(1, 8))
def test_stop_string_across_pieces_is_never_emitted(size):
    text = b"one END two"
    parts, finish = streamed([text[i : i + size] for i in range(0, len(text), size)], "END")
    assert "".join(parts) == "one " and finish == "stop"


def test_prefix_of_a_stop_string_is_emitted():
    parts, finish = streamed([b"E", b"N", b"E", b"N", b"E", b"D", b"EN"], "END")
    # Text is emitted as soon as it cannot begin a stop string.
    assert parts == ["", "", "EN", "", "EN", "ED", "", "EN"] and finish == "eos"


def test_first_stop_string_in_the_text_ends_it():
    assert "".join(streamed([b"a\nb", b"\n\nc"], "\n\n", "c", "b\n\n")[0]) == "a\n"


def test_added_space_is_removed_at_the_start_only():
    parts, _ = streamed([b" The", b" end"], prompt=[BOS], adds_space=True)
    assert parts == ["The", " end", ""]
    assert streamed([b" The"], prompt=[BOS])[0][0] == " The"
    assert streamed([b" The"], adds_space=True)[0][0] == " The"


def test_ids_beyond_the_tokenizer_have_no_text():
    stream = TextStream([BOS], tokenizer_of([b"a"]), Options(max_new_tokens=3))
    stream.add([0, 7, 0, 0])
    assert (stream.generated.text, stream.generated.finish) == ("aa", "length")
