"""Texts and stores for the tests of `data`."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import sentencepiece
import zstandard

from ropewalk.data import store as store_lib
from ropewalk.data.config import DataConfig
from ropewalk.data.prepare import prepare
from ropewalk.data.store import ShardWriter, TokenStore
from ropewalk.data.tokenizer import Tokenizer

B, E = 1, 2  # BOS and EOS
NEW_SOURCE = '''"""Text files."""

from pathlib import Path

from ropewalk.data.source import Document, InputFile, Source


class Texts(Source):
    needs_path = True

    @property
    def files(self):
        paths = sorted(Path(self.path).glob("*.txt"))
        return [InputFile(path=p, name=p.name, size=p.stat().st_size) for p in paths]

    def read_file(self, file, line, on_bytes):
        if line == 1:
            yield Document(self.files[file].path.read_text(), file, 1)
'''


def plain_text(number: int, num_words: int = 60) -> str:
    """Return a text of random words, which `number` decides."""
    rng = np.random.default_rng(number)
    syllables = np.array(["".join(pair) for pair in itertools.product("bdklmnrst", "aeiou")])
    sequence = ["".join(rng.choice(syllables, size=rng.integers(1, 4))) for _ in range(num_words)]
    return f"Document {number}:\n  " + " ".join(sequence) + ".\n"


def train_llama_like(texts: Iterable[str], folder: Path, size: int, **options) -> Tokenizer:
    """Return a tokenizer with Llama's settings: a space before the text, no reserved symbols."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=f"{folder}/m", model_type="bpe",
        vocab_size=size, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, minloglevel=2, **options,
    )  # fmt: skip
    return Tokenizer(folder / "m.model")


def write_jsonl(path: Path, texts: list[str], **fields) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps({"text": text, **fields}) + "\n" for text in texts).encode()
    path.write_bytes(zstandard.compress(data) if path.suffix == ".zst" else data)


def write_corpus(root: Path, tokenizer: Tokenizer) -> Path:
    """Write a tokenizer, 20 texts and 10 for validation, as `make_config` reads them."""
    (root / "t.model").write_bytes(tokenizer.model)
    write_jsonl(root / "in" / "a.jsonl", [plain_text(i) for i in range(20)])
    write_jsonl(root / "in" / "validation.jsonl", [plain_text(i) for i in range(20, 30)])
    return root


def make_config(root: Path, **changes) -> DataConfig:
    """Return a config of the JSON lines in `root`/in and the tokenizer `root`/t.model, if any."""
    model = root / "t.model"
    tokenizer = {"tokenizer": str(model)} if model.exists() else {"vocab_size": 600}
    fields = {"source": "jsonl", "path": str(root / "in"), "prepared_root": str(root / "out")}
    return DataConfig(**({"context_length": 8, "batch_size": 1} | fields | tokenizer | changes))


def run_prepare(root: Path, **changes) -> Path:
    """Return the prepared folder of `make_config`."""
    return prepare(make_config(root, **changes))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a prepared folder except those with timings."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("prepare.json", "progress.json")
    }


def make_store(path, documents, *, vocab_size=300, shards=1):
    """Return a store of `documents` (lists of ids without BOS and EOS) in some shards."""
    path.mkdir(parents=True, exist_ok=True)
    entries = []
    for i, part in enumerate(np.array_split(np.arange(len(documents)), shards)):
        writer = ShardWriter(path, f"{i:05d}", vocab_size)
        for d in part:
            writer.append(np.array([B, *documents[d], E]))
        entries.append(writer.finish())
    tokenizer = SimpleNamespace(fingerprint="t", bos_id=B, vocab_size=vocab_size)
    store_lib.write_index(path, entries, tokenizer)  # pyright: ignore[reportArgumentType]
    return TokenStore(path)
