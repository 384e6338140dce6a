"""Text as users have it: any field, Parquet, plain text; damage is a counted skip or an error."""

import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ropewalk.data.pipeline import open_data
from ropewalk.data.prepare import make_plan, prepare
from ropewalk.data.sources import source_class
from ropewalk.data.store import TokenStore
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.verify import SPLITS
from tests.damage import flip
from tests.data.helpers import make_config, plain_text, write_jsonl


def read(path, source="files", start=(0, 1), **fields):
    return list(source_class(source)(path=str(path), **fields).read(start=start))


def write_parquet(path, texts, name="text", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: texts, "id": list(range(len(texts)))}), path, **options)


@pytest.fixture
def model(tmp_path, tokenizer):
    (tmp_path / "t.model").write_bytes(tokenizer.model)


def config(root, **changes):
    return make_config(root, **({"source": "files"} | changes))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), "string")]
)
def test_all_types_of_text_of_a_parquet_column_are_read(tmp_path, kind):
    texts = [f"text {i}" for i in range(700)]
    write_parquet(tmp_path / "a.parquet", pa.array(texts).cast(kind), row_group_size=300)
    sizes = []
    source = source_class("parquet")(path=str(tmp_path))
    documents = list(source.read(on_bytes=sizes.append))
    assert [(d.line, d.text) for d in documents] == list(enumerate(texts, 1))
    assert sum(sizes) == (tmp_path / "a.parquet").stat().st_size
    assert read(tmp_path, "parquet", start=(0, 650)) == documents[649:]


def test_bad_rows_are_named_and_the_rest_is_read(tmp_path):
    bad = pa.array([b"caf\xe9"]).cast(pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 1, bad.buffers())  # not checked to be UTF-8
    texts = pa.concat_arrays([pa.array(["one", None, " "]), bad, pa.array(["two"])])
    write_parquet(tmp_path / "a.parquet", texts)
    documents = read(tmp_path)
    assert [(d.line, d.text) for d in documents] == list(enumerate(["one", "", "", "", "two"], 1))
    null, empty = '"text" is null, not a string', "empty document"
    utf_8 = "broken UTF-8 at byte 4; convert the file to UTF-8"
    assert [d.problem for d in documents] == [None, null, empty, utf_8, None]


def test_a_damaged_row_group_is_counted_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"{i} {i * 2654435761 % 2**32:x}" for i in range(900)]
    options = {"row_group_size": 300, "compression": "none", "use_dictionary": False}
    write_parquet(path, texts, write_page_checksum=True, **options)
    flip(path, 8 * path.read_bytes().index(texts[450].encode()))
    documents = read(tmp_path)
    (lost,) = [d for d in documents if d.problem]
    assert (lost.line, lost.damaged_bytes > 5000) == (301, True)
    assert "row group 1 is damaged" in str(lost.problem)
    assert [d.text for d in documents if not d.problem] == texts[:300] + texts[600:]
    assert read(tmp_path, start=(0, 302)) == documents[301:]


def write_text_twice(path):
    texts = pa.array(["a"])
    pq.write_table(pa.table([texts, texts], names=["text", "text"]), path)


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda path: path.write_bytes(b"PAR1" + bytes(100)), "magic bytes not found"),
        (lambda path: write_parquet(path, [1, 2]), 'column "text" is int64, not a string'),
        (lambda path: write_parquet(path, ["a"], "body"), r'no column "text" \(columns: body, id'),
        (write_text_twice, '2 columns are named "text"'),
    ],
)
def test_a_file_without_text_stops_or_is_left_out(tmp_path, model, write, problem):
    write_parquet(tmp_path / "in" / "a.parquet", [plain_text(i) for i in range(60)])
    write(tmp_path / "in" / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet"):
        prepare(config(tmp_path))
    folder = prepare(config(tmp_path, on_bad_document="skip"))
    report = json.loads((folder / "prepare.json").read_text())
    assert report["train"]["documents"] + report["validation"]["documents"] == 60
    assert report["skipped"]["count"] == 1
    assert re.search(rf"b\.parquet:1: .*{problem}", report["skipped"]["first"][0])


def test_a_column_of_another_type_is_refused_before_it_is_read(tmp_path):
    for texts in ([["a", "list"]], [b"bytes"], [{"text": "nested"}]):
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=r"text_field=text: .* in .*a\.parquet; it has none"):
            source_class("files")(path=str(tmp_path)).check()


def test_the_field_of_the_text_is_checked_first_and_decides_the_ids(tmp_path, model):
    root = tmp_path / "in"
    texts = [plain_text(i) for i in range(60)]
    write_parquet(root / "b.parquet", texts, "content")
    lines = (json.dumps({"content": text, "title": "A title"}) + "\n" for text in texts[:30])
    (root / "a.jsonl").write_text("".join(lines))
    with pytest.raises(ValueError, match=r"text_field=title: .*b\.parquet"):
        prepare(config(tmp_path, text_field="title"))
    both = prepare(config(tmp_path, text_field="content"))
    assert sum(TokenStore(both / split).num_documents for split in SPLITS) == 90
    path = str(root / "a.jsonl")
    fields = ("content", "title")
    folders = [prepare(config(tmp_path, path=path, text_field=name)) for name in fields]
    assert len({TokenStore(folder / "train").fingerprint for folder in folders}) == 2


def split(documents):
    return [(d.line, d.text, d.held_out) for d in documents]


def test_few_plain_texts_hold_out_their_ends_at_a_paragraph(tmp_path):
    text = "".join(f"Paragraph {i} of forty.\n\n" for i in range(40))
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    for name in ("LICENSE.txt", "Readme.TXT"):  # about the folder
        (tmp_path / name).write_text("Nobody trains on this.")
    cut = text.index("Paragraph 36")  # the last paragraph that begins in the first nine tenths
    parts = [(1, text[:cut], False), (2, text[cut:], True)]
    assert len(text[cut:]) >= len(text) / 10 > len(text[cut:]) - 26
    assert split(read(tmp_path)) == parts == split(read(tmp_path, "txt"))
    assert split(read(tmp_path, start=(0, 2))) == parts[1:]
    description = make_plan(config(tmp_path, path=str(tmp_path))).describe()[-1]
    assert description.endswith("the last 1/10 of each text file is held out")


def test_names_of_splits_and_many_files_hold_out_whole_texts(tmp_path):
    for i in range(40):
        (tmp_path / os.fsdecode(b"%d\xe9.txt" % i)).write_text(plain_text(i))  # not UTF-8
    assert sum(f.validation for f in source_class("files")(path=str(tmp_path)).files) == 2
    assert {d.held_out for d in read(tmp_path)} == {None}
    (tmp_path / "test.txt").write_text("held out")
    held_out = [f.name for f in source_class("txt")(path=str(tmp_path)).files if f.validation]
    assert held_out == ["test.txt"]


def test_a_tokenizer_is_trained_on_all_of_a_long_text_but_its_held_out_end(tmp_path):
    common = plain_text(1) + "\n"
    text = common * (20_000 // len(common)) + "zebrafish\n" * 3000
    (tmp_path / "a.txt").write_text(text + "\n" + "quokka\n" * 900)
    tokenizer = Tokenizer(prepare(config(tmp_path, path=str(tmp_path))) / "tokenizer.model")
    zebrafish, quokka = (tokenizer.encode(word, inside=True) for word in ("zebrafish", "quokka"))
    assert len(zebrafish) == 1 < len(quokka)


@pytest.mark.parametrize(("count", "context"), [(1, 300), (5, 700), (100, 2000)])
@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_a_row_is_held_out_of_few_documents(tmp_path, model, suffix, count, context):
    """Whole documents, until a row of validation has text; of a single document, its end."""
    (root := tmp_path / "in").mkdir()
    texts = [plain_text(i, 1000 if count == 1 else 200) for i in range(count)]
    if suffix == ".jsonl":
        write_jsonl(root / "a.jsonl", texts)
    for i, text in enumerate(texts if suffix == ".txt" else ()):
        (root / f"{i}.txt").write_text(text)
    own = config(tmp_path, context_length=context)
    data, folder = open_data(own), prepare(own)
    for split in SPLITS:
        assert data.open_rows(split)[0]["tokens"].shape == (context,)
    tokenizer = Tokenizer(folder / "tokenizer.model")
    trained, held_out = (
        [tokenizer.decode(store.document(i)) for i in range(store.num_documents)]
        for store in (TokenStore(folder / split) for split in SPLITS)
    )
    if count == 1:
        assert trained + held_out == [texts[0][: len(trained[0])], texts[0][len(trained[0]) :]]
    else:
        assert sorted(trained + held_out) == sorted(texts)
    with pytest.raises(ValueError, match=r"needs 90001; use more text, or a lower data\.context_l"):
        open_data(config(tmp_path, context_length=90_000)).open_rows("validation")


def test_the_held_out_files_that_a_user_names_are_not_extended(tmp_path, model):
    write_jsonl(tmp_path / "in" / "a.jsonl", [plain_text(i) for i in range(20)])
    write_jsonl(tmp_path / "in" / "dev.jsonl", ["short"])
    with pytest.raises(ValueError, match=r"validation \(held-out text\) holds \d ids"):
        open_data(config(tmp_path, context_length=32)).open_rows("validation")


def test_a_tokenizer_of_a_small_text_has_fewer_pieces(tmp_path, capsys):
    write_jsonl(tmp_path / "in" / "a.jsonl", ["ab ab " * 20] * 9)
    size = Tokenizer(prepare(config(tmp_path, vocab_size=4096)) / "tokenizer.model").vocab_size
    assert 480 < size < 600 and f"its tokenizer has {size}" in capsys.readouterr().err
