"""Weights per corpus and long documents: shares of the rows, refusals, and equal rows again."""

import collections
import json

import numpy as np
import pytest

from ropewalk.data.domains import domain_of
from ropewalk.data.pipeline import make_batches, open_data
from ropewalk.data.prepare import prepare
from ropewalk.data.store import TokenStore
from ropewalk.data.tokenizer import file_in
from ropewalk.data.verify import damages
from tests.damage import flip
from tests.data.helpers import make_config, write_jsonl

# Each corpus has words of its own; books has long documents (of more than 200 ids) and short ones.
CORPORA = {"books": ("ba", (20, 200)), "code": ("de", (30,)), "web": ("go", (40,))}


@pytest.fixture
def root(tmp_path, tokenizer):
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    for corpus, (word, lengths) in CORPORA.items():
        texts = [f"{word} " * length + str(i) for i in range(40) for length in lengths]
        write_jsonl(tmp_path / "in" / corpus / "train" / "a.jsonl", texts)
    return tmp_path


def config(root, **changes):
    fields = {"source": "files", "context_length": 32, "batch_size": 50}
    return make_config(root, **(fields | changes))


def corpora_of(rows, tokenizer):
    """Return the corpora of the words in each row."""
    texts = [tokenizer.decode([int(i) for i in row if i > 2]) for row in rows]
    words = {corpus: word for corpus, (word, _) in CORPORA.items()}
    return [{corpus for corpus, word in words.items() if word in text} for text in texts]


def test_rows_come_from_the_corpora_by_their_weights(root, tokenizer):
    data = config(root, weights=(("books", 3), ("code", 1.5), ("web", 0.5)), seed=3)
    rows = next(make_batches(open_data(data, prepare(data)), start_step=4))["tokens"]
    corpora = corpora_of(rows, tokenizer)
    assert all(len(names) == 1 for names in corpora)  # no row mixes two
    counts = collections.Counter(name for names in corpora for name in names)
    assert counts == {"books": 30, "code": 15, "web": 5}


def test_long_documents_have_their_part_of_each_corpus(root, tokenizer):
    weights = (("books", 1), ("code", 1), ("web", 2))
    data = config(root, weights=weights, long_fraction=0.75, long_tokens=200, batch_size=160)
    opened = open_data(data, prepare(data))
    batch = next(make_batches(opened, start_step=0))
    names = np.array(["+".join(names) for names in corpora_of(batch["tokens"], tokenizer)])
    # A row of long documents of more than 200 ids holds a border at most once.
    is_long = batch["segment_ids"].max(axis=1) <= 2
    assert np.count_nonzero(names == "books") == 40
    assert np.count_nonzero(is_long & (names == "books")) >= 30
    # The others have no long document, and give all their rows from what they have.
    assert [np.count_nonzero(names == name) for name in ("code", "web")] == [40, 80]
    notes = opened.open_rows("train").notes(160)  # pyright: ignore
    shares = [note.removeprefix("warning: ").split("% of")[0] for note in notes]
    assert shares == ["6.25", "18.8", "25", "50"]
    assert "book, from 200 tokens" in notes[1] and "web, below 200 tokens" in notes[3]


def test_all_documents_are_in_one_domain(root, tmp_path):
    weights = (("books", 1), ("code", 1), ("web", 2))
    data = config(root, weights=weights, long_fraction=0.5, long_tokens=200)
    folder = prepare(data)
    plain = prepare(config(root))
    report, other = (json.loads((f / "prepare.json").read_text()) for f in (folder, plain))
    names = "documents", "tokens", "text_bytes"
    assert [report["train"][n] for n in names] == [other["train"][n] for n in names]
    counts = {f.name: TokenStore(f).num_documents for f in folder.glob("train-*")}
    assert counts == {name: counts["documents"] for name, counts in report["strata"].items()}
    assert counts.keys() == {f"train-{i:02d}{end}" for i in range(3) for end in ("", "-long")}
    assert counts["train-00-long"] > 30
    for num_ids in (199, 200):  # at least `long_tokens`
        assert domain_of(report["settings"], "book", num_ids) == ("book", num_ids == 200)
    # Weights and shares change no file.
    others = config(root, weights=weights[::-1], long_fraction=0.1, long_tokens=200)
    assert prepare(others) == folder
    assert prepare(config(root, weights=weights)) not in (folder, plain)
    # Rows of validation are those without weights.
    row, expected = (
        open_data(d, f).open_rows("validation")[5]
        for d, f in ((data, folder), (config(root), plain))
    )
    assert all((row[name] == expected[name]).all() for name in row)
    assert list(damages(folder)) == []
    flip(folder / "train-00-long" / "00000.array_record", -160)
    assert "train-00-long" in next(damages(folder))


ALL = (("books", 1), ("code", 1), ("web", 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": (("books", 1), ("web", 1))}, r"code.*: data\.weights has none for .*'code'"),
        ({"long_fraction": 0.5, "long_tokens": 5000}, "no document has 5,000 tokens"),
        ({"weights": ALL, "subset_shares": (("web", 0.0),)}, "subset_shares leaves out 'web'"),
    ],
)
def test_weights_that_do_not_fit_are_refused(root, changes, message):
    with pytest.raises(ValueError, match=message):
        data = config(root, **changes)
        open_data(data, prepare(data))


def test_a_corpus_can_be_left_out_and_no_other_one_is(root):
    weights = (("books", 1), ("code", 1))
    trained = {"weights": weights, "tokenizer": None, "vocab_size": 488}
    data = config(root, **trained, subset_shares=(("web", 0.0),))
    folder = prepare(data)
    report = json.loads((folder / "prepare.json").read_text())
    assert report["train"]["documents"] + report["validation"]["documents"] == 120
    (root / "in" / "web").rename(root / "web")  # the tokenizer is trained without it, too
    without = prepare(config(root, **trained))
    (root / "web").rename(root / "in" / "web")
    assert file_in(folder).read_bytes() == file_in(without).read_bytes()
    with (root / "in" / "code" / "train" / "a.jsonl").open("a") as file:
        file.write(json.dumps({"text": "labeled", "red_pajama_subset": "c4"}) + "\n")
    with pytest.raises(ValueError, match=r"code.*a\.jsonl:41: data\.weights has none for .*'c4'"):
        prepare(data)
    write_jsonl(root / "in" / "b.jsonl", ["in no folder"])
    with pytest.raises(ValueError, match=r"b\.jsonl: belongs to no corpus"):
        prepare(data)
