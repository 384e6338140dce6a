"""Texts, tokenizers and documents that nothing can be trained on, and damage where it is read."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import sentencepiece
import tensorflow_datasets as tfds
import zstandard

import evals
from data import json_lines, keys
from data.config import DataConfig
from data.packing import TextRows
from data.pg19 import test_books as books
from data.prepare import prepare
from data.redpajama.redpajama_dataset_builder import published_files
from data.sources.local import local_files
from data.store import TokenStore
from data.task import TaskContext
from data.tokenizer import Tokenizer, train
from evals import text
from tests.data.helpers import make_store, plain_text
from tests.errors.table import Row


def lines(*texts: str, **fields: str) -> str:
    """The lines of a JSONL file."""
    return "".join(json.dumps({"text": content, **fields}) + "\n" for content in texts)


TEXTS = [plain_text(number) for number in range(60)]


def config(**fields) -> DataConfig:
    """A config of texts in `in`, prepared in `out`."""
    defaults = {"source": "jsonl", "path": "in", "prepared_root": "out", "vocab_size": 550}
    return DataConfig(context_length=8, batch_size=1, **defaults | fields)


def asked(length: int = 64, tokenizer: Tokenizer | None = None, **fields) -> TaskContext:
    """A task's context, with a small tokenizer."""
    if tokenizer is None:
        train(TEXTS, "t.model", 550)
        tokenizer = Tokenizer("t.model")
    return TaskContext(
        data=config(**fields), tokenizer=tokenizer, length=length, seed=0, split="validation"
    )


def foreign(vocab_size: int = 340, **options) -> Tokenizer:
    """A tokenizer that others trained, in their way."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix="foreign",
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        minloglevel=2,
        **options,
    )
    return Tokenizer("foreign.model")


def stored(change: str, content: bytes | None):
    """Reads a store one of whose files is changed, or gone."""
    store = make_store(Path("store"), [[3] * 30])
    (path,) = Path("store").glob(change)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    return TokenStore(store.path).document(0)


def beyond(expression: str, length: int, **changes):
    """Make a task's documents at one length, in a changed context."""
    task = evals.parse(expression)
    return task.documents(dataclasses.replace(asked(length), **changes), range(1))


def as_tfrecord(patch):
    """PG-19 as `tfds build` makes it by default."""

    def refuse(split):
        raise NotImplementedError

    builder = SimpleNamespace(
        is_prepared=lambda: True, as_data_source=refuse, data_path="books/pg19/0.1.1"
    )
    patch.setattr(tfds, "builder", lambda name, data_dir: builder)
    Path("books/pg19").mkdir(parents=True)


ROWS = [
    Row("-m data.prepare --source jsonl", "data.source=jsonl needs data.path=FILE_OR_FOLDER"),
    Row(
        "-m data.prepare --source jsonl --path nowhere --out out", "nowhere: no such file or folder"
    ),
    Row(
        "-m data.prepare --vocab-size 300 --out out",
        "vocab_size=300 is too small: bytes, retrieval symbols and ASCII take 482; "
        "give at least 964",
    ),
    Row(
        "-m data.prepare --tokenizer t.model --out out",
        "t.model: no tokenizer there (No such file or directory)",
    ),
    Row(
        "-m data.prepare --tokenizer t.model --out out",
        "t.model: not a SentencePiece model",
        files={"t.model": "hello"},
    ),
    Row(
        lambda: json_lines.jsonl_files(Path()),
        ".: folder holds none of *.jsonl, *.jsonl.gz, *.jsonl.zst",
    ),
    Row(
        "-m data.prepare --source jsonl --path a.txt --out out",
        "a.txt: not one of *.jsonl, *.jsonl.gz, *.jsonl.zst",
        files={"a.txt": "a"},
    ),
    Row(
        local_files.__wrapped__,
        ".: no .py files; this Python has no library source, use --source jsonl",
        given=lambda patch: patch.setattr("sysconfig.get_path", lambda name: "."),
    ),
    Row(
        lambda: list(json_lines.lines(Path("a.jsonl.zst"))),
        "a.jsonl.zst: file is cut short: it ends inside compressed data",
        files={"a.jsonl.zst": zstandard.compress(lines(*TEXTS).encode())[:-100]},
    ),
    Row(
        lambda: prepare(config()),
        'in/a.jsonl:61: no "text" in this JSON line',
        files={"in/a.jsonl": lines(*TEXTS) + '{"no": 1}\n'},
    ),
    Row(
        lambda: [prepare(config(on_bad_document=way)) for way in ("skip", "error")],
        'in/a.jsonl:61: no "text" in this JSON line (and 1 more); '
        "on_bad_document=skip leaves such documents out",
        files={"in/a.jsonl": lines(*TEXTS) + '{"no": 1}\n{"text": ""}\n'},
    ),
    *(
        Row(
            lambda shares=shares: prepare(config(subset_shares=shares)),
            says,
            files={"in/a.jsonl": lines(*TEXTS, red_pajama_subset="c4")},
        )
        for shares, says in (
            (
                (("boook", 0.5),),
                "unknown subset 'boook' in subset_shares; did you mean 'book'? (valid: {})",
            ),
            ((("c4", 0.0),), "in: no training document in the source"),
        )
    ),
    Row(
        lambda: prepare(config(source="redpajama"), show_progress=False),
        'in/github_sample.jsonl:2: no "text" in this JSON line',
        files={"in/github_sample.jsonl": lines("a") + '{"txt": 1}\n'},
    ),
    Row(
        lambda: published_files("full", Path("in")),
        "in: no file of RedPajama's 'full' layout",
        files={"in/x.jsonl": lines("a")},
    ),
    Row(
        lambda: books("books"),
        "books/pg19/0.1.1: not prepared as array_record, and only TensorFlow reads "
        "the rest; prepare it again with --file_format=array_record",
        given=as_tfrecord,
    ),
    Row(lambda: train(["", "\n\n"], "t.model", 1000), "no text to train a tokenizer on"),
    Row(
        lambda: train(["text"], "t.model", 400),
        "vocab_size=400 is too small: bytes, retrieval symbols and ASCII take 482; "
        "give at least 964",
    ),
    Row(
        lambda: train([plain_text(0)], "t.model", 4000),
        "vocab_size=4000 does not suit this text: {}Vocabulary size too high (4000). {}",
    ),
    Row(
        lambda: foreign(bos_id=-1),
        "foreign.model: tokenizer has no BOS or no EOS; documents need both",
    ),
    Row(
        lambda: foreign(vocab_size=300).fillers,
        "tokenizer has 41 ordinary pieces; retrieval documents need 256",
    ),
    *(
        Row(
            lambda: keys.digits(foreign(), [12345], task="lines"),
            says,
            given=lambda patch, ids=ids: patch.setattr(Tokenizer, "encode", lambda *_, **__: ids),
        )
        for ids, says in (
            (
                [7, 8],
                "lines cannot ask for numbers: a digit is not one piece of this tokenizer; "
                "train it with digits",
            ),
            (
                [7],
                "lines cannot ask for numbers: this tokenizer joins digits; train it with "
                "digits split",
            ),
        )
    ),
    Row(
        lambda: keys.append_entries([], [([1], [2])], 100, task="lines"),
        "lines does not fit this length: it has 1 different keys",
    ),
    Row(
        lambda: TextRows(make_store(Path("store"), [[3] * 30]), 32, seed=0),
        "store holds 32 ids, a row of context_length=32 needs 33; use more text",
    ),
    Row(
        lambda: beyond("kv", 400, distances=(400, 999)),
        "no question can be asked at distances 400 to 999; at this length there are 1 to 397",
    ),
    Row(
        lambda: beyond("kv", 3),
        "kv does not fit length=3; the shortest that works with this tokenizer is 4",
    ),
    Row(lambda: beyond("kv(pairs=65)", 400), "pairs must be a whole number in [1, 64], got 65"),
    Row(
        lambda: beyond("kv(pairs=8)", 400, data=config(documents=1)),
        "kv(pairs=8) needs data.documents=2; documents of version 1 have no (pairs=8)",
    ),
    Row(
        lambda: beyond("kv(per_octave=0)", 400), "per_octave must be a finite number above 0, got 0"
    ),
    Row(
        lambda: beyond("lagcopy(answers=0)", 400),
        "answers must be a whole number of at least 1, got 0",
    ),
    Row(
        lambda: text.validation(asked(source="retrieval"), task="perplexity"),
        "perplexity needs text, and data.source=retrieval has none",
    ),
    Row(
        lambda: text.validation(asked(path="nowhere"), task="perplexity"),
        "perplexity needs the text the run was trained on: nowhere: no such file or folder",
    ),
    Row(
        lambda: text.validation(asked(), task="perplexity"),
        "perplexity needs the text the run was trained on, but "
        "out/jsonl-{} has another tokenizer: data.source=jsonl is not the "
        "same on this machine; evaluate the run where it was trained",
        files={"in/a.jsonl": lines(*TEXTS[:50])},
    ),
    Row(
        lambda: text.validation(
            dataclasses.replace(asked(), held_out=make_store(Path("held"), [[3]]).path),
            task="perplexity",
        ),
        "perplexity needs held-out text: held/store.json: damaged: its fingerprint "
        "is not that of its shards and the tokenizer; delete held, and it is made "
        "again of the text the run was trained on",
    ),
    Row(
        lambda: stored("store.json", b"{"),
        "store/store.json: damaged: it is not JSON; `python -m data.prepare "
        "--verify` says what to delete",
    ),
    Row(
        lambda: stored("store.json", b"[]"),
        "store/store.json: damaged: it is not a JSON object; `python -m data.prepare "
        "--verify` says what to delete",
    ),
    Row(
        lambda: stored("store.json", b'{"sha256": "0"}'),
        "store/store.json: damaged: its sha256 is not that of its content; `python "
        "-m data.prepare --verify` says what to delete",
    ),
    Row(
        lambda: stored("*.array_record", b""),
        "store/00000.array_record: {} bytes where {} were written; `python "
        "-m data.prepare --verify` says what to delete",
    ),
    Row(
        lambda: stored("*.npy", b""),
        "store/00000.starts.npy: {} bytes where {} were written; `python -m "
        "data.prepare --verify` says what to delete",
    ),
    Row(
        lambda: stored("*.npy", None),
        "store/00000.starts.npy: missing; `python -m data.prepare --verify` says what to delete",
    ),
    Row(
        lambda: stored("*.npy", 136 * b"x"),
        "store/00000.starts.npy: damaged: not an array that can be read; `python -m "
        "data.prepare --verify` says what to delete",
    ),
    Row(
        lambda: stored("*.array_record", 2**17 * b"x"),
        "store/00000.array_record: damaged: a record cannot be read ({}; "
        "`python -m data.prepare --verify` says what to delete",
    ),
]
