"""Readers of files that others may have written: what SECURITY.md promises of each of them."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk import evals
from ropewalk.data.store import TokenStore
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer_json import JsonPieces
from ropewalk.evals import rows
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop import hf_config, tensors, tokenizer_files
from ropewalk.interop.layers import imported_layers
from ropewalk.model import rotary
from ropewalk.utils import limits, manifest
from tests.data.helpers import make_store
from tests.in_process import limit_time

FIFO, FOLDER, HUGE = b"a pipe, not a file", b"a folder, not a file", b"64 GiB"
ALWAYS = [FIFO, FOLDER, HUGE, b"", bytes(range(256)) * 9]
NESTED = [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000]


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    special = {FIFO: os.mkfifo, FOLDER: Path.mkdir}
    special.get(data, lambda path: path.write_bytes(data))(path)
    if data == HUGE:
        os.truncate(path, 2**36)


def read_results(folder: Path) -> None:
    columns = rows.read(folder / "results.jsonl")
    for name in {*columns["task"].tolist()}:
        evals.parse(name)
    assert all(map(str.isprintable, columns["rotary"].tolist())), "control characters"


def read_store(folder: Path) -> None:
    list(manifest.find_damages(folder / "store.json"))
    TokenStore(folder).document(0)


def read_tokenizer(folder: Path) -> None:
    if path := tokenizer_files.find_tokenizer(folder):
        Tokenizer(path)


def npy(shape, data=bytes(8), descr="<f8") -> bytes:
    """Return an array whose header says another shape than its data has."""
    buffer = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + data


def changed(record: dict, *changes: dict) -> list[bytes]:
    return [json.dumps(record | change).encode() for change in changes or [{}]]


VALUES = {str: "kv", int: 2, float: 0.5, bool: True}
ROW = {name: VALUES[kind] for name, kind in rows.SCHEMA.items()} | {"rank": 0}
HF = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96}
HF |= {"num_hidden_layers": 2, "max_position_embeddings": 128, "intermediate_size": 128}
DECODER = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
PIECES = {"decoder": DECODER, "model": {"type": "BPE", "vocab": {"a": 2**24}, "merges": []}}
SHARDS = {"shards": [{"name": "../x", "tokens": 1, "documents": 1}], "files": {"/etc/passwd": 1}}
STORE = {"format": 1, "fingerprint": "x", "bos_id": 1, "dtype": "<u2", **SHARDS}
ARRAYS = [npy((2**50,)), npy((2**40, 0), b""), npy((2,), bytes(16), "V8"), b"\x93NUMPY"]
NAMES = [{"weight_map": {"a": name}} for name in ("a" * 400, "\x1b[2J", "\ud800", "../x", ["x"])]

# By the file that it reads: a reader, and inputs of which each once made one fail.
READERS: dict[str, tuple[Callable[[Path], Any], list[bytes]]] = {
    "config.json": (lambda folder: RunDirectory(folder).config, NESTED),
    "results.jsonl": (read_results, NESTED + changed(ROW, {"rotary": "\x1b[2J"})),
    "store.json": (read_store, NESTED + changed(manifest.seal(STORE))),
    "00000.starts.npy": (read_store, ARRAYS),
    "x.npy": (lambda folder: rotary.parse_pattern(f"explicit(file='{folder}/x.npy')"), ARRAYS),
    "tokenizer.model": (read_tokenizer, []),
    "tokenizer.json": (read_tokenizer, NESTED + changed(PIECES)),
    "model.safetensors": (tensors.Tensors, []),
    "model.safetensors.index.json": (tensors.Tensors, NESTED + changed({}, *NAMES)),
    "hf/config.json": (
        lambda folder: imported_layers(hf_config.read_config(folder / "hf")),
        NESTED + changed(HF, {"num_hidden_layers": 10**9}, {"rope_parameters": 1}),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_ends_in_time_with_success_or_one_line(name, tmp_path):
    read, inputs = READERS[name]
    problems = {}
    for number, data in enumerate([*inputs, *ALWAYS]):
        folder = tmp_path / str(number)
        if read is read_store:
            make_store(folder, [[3, 4, 5], [6, 7]])
        put(folder / name, data)
        try:
            with limit_time(30):
                read(folder)
        except (ValueError, OSError) as error:  # which a command prints
            message = str(error).replace(str(folder), "")
            if len(message) > 300 or not message.isprintable():
                problems[data[:60]] = message[:80]
        except BaseException as error:
            problems[data[:60]] = repr(error)[:200]
    assert problems == {}


def test_limits_admit_real_files(tmp_path):
    assert limits.parse_json(b"[" * 100 + b"]" * 100)
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        limits.parse_json(b"[" * 101 + b"]" * 101)
    with pytest.raises(ValueError, match="16,777,216"):  # a list has a name for each id below
        JsonPieces(json.dumps(PIECES).encode())
    np.save(tmp_path / "x.npy", np.asfortranarray([[0, 1, 2], [3, 4, 5]]))
    assert limits.open_array(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
