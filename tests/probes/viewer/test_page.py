"""The file is self-contained and small, and its packed arrays decode to the originals."""

import base64
import json
import re
import types
import zlib

import numpy as np
import pytest

from ropewalk.probes import capture, view
from ropewalk.probes.viewer.arrays import pack_rows
from ropewalk.utils.messages import printable
from tests.probes.test_capturing import make_rows, random_model


def tokenizer(vocab_size: int) -> types.SimpleNamespace:
    """Return a tokenizer with pieces of every kind that could break a page."""
    pieces = [b"", b"", b"", b"</script>", b"<!--", b"\xe2", b"\x07", b"\n", b" a", "ä".encode()]
    pieces += [b"%d" % i for i in range(len(pieces), vocab_size)]
    return types.SimpleNamespace(bos_id=1, eos_id=2, vocab_size=vocab_size, piece_bytes=pieces)


@pytest.fixture(scope="module")
def run():
    return random_model({}, "rope(base=30)")


@pytest.fixture(scope="module")
def captured(run):
    tokens_BT = make_rows(run)["tokens"]
    tokens_BT[:, :10] = np.arange(10)  # every kind of piece
    return capture(run, tokens_BT)


def script_text(page: str, name: str) -> str:
    return re.search(f'id="{name}">(.*?)</script>', page, re.DOTALL)[1]


def test_packed_arrays_decode_to_the_originals(run, captured):
    captured = capture(run, captured.tokens_BT[:, :38])  # 741 weights: no multiple of four
    pieces = tokenizer(run.config.model.vocab_size)
    page = view({"one": captured, "two": captured}, pieces, layers=[1], heads=[1])
    data = json.loads(script_text(page.html, "page"))
    numbers = zlib.decompress(base64.b64decode(script_text(page.html, "numbers")))
    assert [member["name"] for member in data["members"]] == ["one", "two"]
    assert data["members"][0]["heads"] == [[1, 1]]
    np.testing.assert_allclose(
        data["members"][0]["turns"][0], captured.table().inv_freq[1, 0] / (2 * np.pi)
    )
    for row, by_name in enumerate(pack_rows(captured, [(1, 1)])):
        np.testing.assert_array_equal(data["rows"][row]["tokens"], captured.tokens_BT[row])
        for arrays in data["rows"][row]["members"]:
            for name, array in by_name.items():
                kind, start, size = arrays[name]
                assert start % 4 == 0
                unpacked = np.frombuffer(numbers, kind, size, start)
                np.testing.assert_array_equal(unpacked, array.ravel())


def test_token_texts_do_not_end_the_script(run, captured):
    page = view(captured, tokenizer(run.config.model.vocab_size))
    data = json.loads(script_text(page.html, "page"))
    names = dict(zip(data["ids"], data["pieces"], strict=True))
    assert [names[i] for i in range(10)] == [
        "⟨0⟩", "⟨s⟩", "⟨/s⟩", "</script>", "<!--", "⟨E2⟩", "⟨07⟩", "\n", " a", "ä",
    ]  # fmt: skip
    assert page.html.count("</script>") == 3 and "<!--" not in page.html
    # It fetches nothing.
    for word in ("http", "src=", "@import", "url(", "fetch(", "XMLHttp"):
        assert word not in page.html.split('id="numbers"')[0] + page.html.split("</script>")[-2]


def test_predicted_ids_of_a_padded_vocabulary_have_their_number(run, captured):
    """The model has more ids than its tokenizer, and predicts some of them."""
    narrow = capture(run, captured.tokens_BT % 40)
    data = json.loads(script_text(view(narrow, tokenizer(40)).html, "page"))
    padded = [index for index, token in enumerate(data["ids"]) if token >= 40]
    assert padded and all(data["pieces"][i] == f"⟨{data['ids'][i]}⟩" for i in padded)


HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\x07\u202e"


def test_names_and_titles_are_neither_markup_nor_control_characters(run, captured):
    page = view({HOSTILE: captured}, tokenizer(run.config.model.vocab_size), titles=[HOSTILE]).html
    assert "<img" not in page and page.count("</script>") == 3 and printable(page) == page
    data = json.loads(script_text(page, "page"))
    shown = r"</script><img src=x onerror=alert(1)>\x1b[2J\x07\u202e"
    assert data["members"][0]["name"] == data["rows"][0]["title"] == shown
