"""Readers of files that others may have written, on inputs that once made one fail."""

import functools
import io
import json
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk import evals
from ropewalk.configs import find_config
from ropewalk.data import chat, store
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer_json import JsonPieces, template
from ropewalk.evals import rows
from ropewalk.experiment.config import to_dict
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop import hf_config, tensors, tokenizer_files
from ropewalk.interop.layers import imported_layers
from ropewalk.model import rotary
from ropewalk.reporting import commands
from ropewalk.utils import limits, manifest
from tests.data.helpers import make_store
from tests.in_process import limit_time

RUN = Path(__file__).parents[2] / "notebooks" / "runs" / "base=10,num_heads=1"
FIFO, FOLDER, HUGE = b"a pipe, not a file", b"a folder, not a file", b"64 GiB"
ALWAYS = [HUGE, FOLDER, b"", bytes(range(256)) * 9]
PIB8 = (2**50,)
NESTED = [b"[" * n + b"]" * n for n in (101, 5_000, 100_000)]
NESTED.append(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
KEPT = tempfile.TemporaryDirectory()


@functools.cache
def token_store() -> Path:
    make_store(folder := Path(KEPT.name) / "store", [[3, 4, 5], [6, 7]])
    return folder


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    special = {FIFO: os.mkfifo, FOLDER: Path.mkdir}
    special.get(data, lambda path: path.write_bytes(data))(path)
    if data == HUGE:
        os.truncate(path, 2**36)


def read_run(folder: Path) -> None:
    run = RunDirectory(folder)
    config = run.config
    run.positions_at(config.train.num_steps)
    config.model.position_table(config.data.context_length)
    commands.train_command(folder)


def read_results(folder: Path) -> None:
    columns = rows.read(folder / "results.jsonl")
    for name in {*columns["task"].tolist()}:
        evals.parse(name)
    for name in ("task", "run", "rotary"):
        assert all(map(str.isprintable, columns[name].tolist())), "a name with control characters"


def read_store(folder: Path) -> None:
    for path in token_store().iterdir():
        if not (folder / path.name).exists():
            shutil.copy(path, folder)
    list(manifest.find_damages(folder / "store.json"))
    tokens = store.TokenStore(folder)
    for document in {0, tokens.num_documents - 1} if tokens.num_documents else ():
        tokens.document(document)


def read_tokenizer(folder: Path) -> None:
    if not (folder / "tokenizer.model").exists() and not (folder / "tokenizer.json").exists():
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"post_processor": None}))
    path = tokenizer_files.find_tokenizer(folder)
    tokenizer = Tokenizer(path, chat_template=chat.read_template(folder)) if path else None
    if tokenizer and tokenizer.vocab_size < 10_000:
        tokenizer.decode(tokenizer.encode("a b"))
        tokenizer.piece_bytes  # noqa: B018 - computed on access


def read_index(folder: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "b.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    tensors.Tensors(folder)


def read_frequencies(folder: Path) -> None:
    rotary.parse_pattern(f"explicit(file='{folder}/x.npy')")


def npy(shape, data=bytes(8), descr="<f8") -> bytes:
    """Return an array whose header says another shape than its data has."""
    buffer = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + data


def changed(record: dict, *changes: dict) -> list[bytes]:
    return [json.dumps(record | change).encode() for change in changes]


VALUES = {str: "kv", int: 2, float: 0.5, bool: True}
ROW = {name: VALUES[kind] for name, kind in rows.SCHEMA.items()} | {"rank": 0}
HF = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96}
HF |= {"num_hidden_layers": 2, "max_position_embeddings": 128, "intermediate_size": 128}
DECODER = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
SPECIAL = {"content": "<s>", "special": True, "single_word": False, "lstrip": False}
PIECES = [*(f"<0x{byte:02X}>" for byte in range(256)), "a", "b", "<s>"]
MODEL = {"type": "BPE", "vocab": {name: i for i, name in enumerate(PIECES)}, "merges": []}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [SPECIAL | {"id": 258, "rstrip": False, "normalized": False}],
    "post_processor": template(["<s>"], ["<s>"], {"<s>": 258}),
    "decoder": DECODER,
    "model": MODEL | {"byte_fallback": True},
}
SMALL = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
SMALL |= {"decoder": DECODER, "post_processor": template(["a"], ["a"], {"a": 0})}
PREFIXED = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}}
STORE = {"format": 1, "fingerprint": "x", "bos_id": 1, "dtype": "<u2", "shards": [], "files": {}}
CONFIG = to_dict(find_config("tiny"))

READERS: dict[str, Callable[[Path], Any]] = {  # by the file that they read
    "config.json": read_run,
    "results.jsonl": read_results,
    "store.json": read_store,
    **dict.fromkeys(("00000.starts.npy", "00000.array_record"), read_store),
    "x.npy": read_frequencies,
    "tokenizer.model": read_tokenizer,
    "tokenizer.json": read_tokenizer,
    "tokenizer_config.json": read_tokenizer,
    "model.safetensors": tensors.Tensors,
    "model.safetensors.index.json": read_index,
    "hf/config.json": lambda folder: imported_layers(hf_config.read_config(folder / "hf")),
}
INPUTS = {name: list(NESTED) if ".npy" not in name else [] for name in READERS}
INPUTS["config.json"] += changed(
    {},
    {"config": CONFIG | {"model": CONFIG["model"] | {"window": [2**60]}}},
    {"config": CONFIG | {"data": CONFIG["data"] | {"context_length": 1}}},
    {"config": CONFIG | {"train": CONFIG["train"] | {"profile_steps": [1] * 400}}},
    {"config": {"class": "experiment.config.TrainConfig", "a" * 400: 1}},
)
INPUTS["results.jsonl"] += changed(ROW, {"rotary": "\x1b[2J"})
STORES = [{"shards": [{"name": "../x", "tokens": 1, "documents": 1}]}, {"shards": [{"name": "x"}]}]
STORES += [{"dtype": "<u3"}, {"bos_id": []}, *({name: None} for name in STORE)]
STORES += [{"files": value} for value in ({"x": {}}, {"/etc/passwd": 1}, [1])]
INPUTS["store.json"] += changed({}, *(manifest.seal(STORE | change) for change in STORES))
INPUTS["00000.starts.npy"] = [npy(PIB8), npy((-1, -1)), npy((2**62, 0)), b"\x93NUMPY"]
STARTS = [[0, 99], [5, 0], [0, 0], [-1, 2]]
INPUTS["00000.starts.npy"] += [npy((2,), np.array(x).tobytes(), "<i8") for x in STARTS]
INPUTS["x.npy"] = [npy(PIB8), npy((2**40, 0), b""), npy((2,), bytes(16), "V8")]
INPUTS["tokenizer.json"] += changed(
    SMALL,
    *({"decoder": DECODER | {"type": value}} for value in (["x"], "\x1b[2J" * 99)),
    *({"decoder": DECODER | {"decoders": value}} for value in ([1], 1)),
    {"post_processor": template(["a"], ["a"], {"a": math.inf})},  # pyright: ignore
    *({"model": {"vocab": vocab}} for vocab in ({"a": []}, [1])),
    # Rust panics: the prefix is longer than the piece that it begins.
    {"model": PREFIXED | {"merges": [["a", "b"]], "continuing_subword_prefix": "###"}},
)
INPUTS["tokenizer_config.json"] += changed({}, {"eos_token_id": [[]]}, {"eos_token": "a" * 400})
INPUTS["model.safetensors.index.json"] += changed(
    {}, *({"weight_map": {"a": name}} for name in ("a" * 400, "\x1b[2J", "\ud800", "../x", ["x"]))
)
INPUTS["hf/config.json"] += changed(
    HF,
    {"vocab_size": 2**62},
    *({"rope_parameters": 1}, {"partial_rotary_factor": 1e12}),
    {"rope_scaling": {"rope_type": "yarn", "factor": 2, "attention_factor": "a" * 400}},
    *({"layer_types": [["x"], {}]}, {"num_hidden_layers": 10**9}, {"model_type": ["x"]}),
)


def find_problem(read: Callable[[Path], Any], folder: Path) -> str:
    """Describe an outcome other than success and an error of one line; empty for these."""
    try:
        with limit_time(30):
            read(folder)
    except (ValueError, OSError) as error:  # which a command prints
        message = str(error).replace(str(folder), "")
        is_line = len(message) <= 300 and message.isprintable()
        return "" if is_line else f"{len(message)} characters: {message[:80]!r}"
    except BaseException as error:
        return repr(error)[:200]
    return ""


@pytest.mark.parametrize("name", READERS)
def test_known_inputs(name, tmp_path):
    problems = {}
    for number, data in enumerate([*INPUTS[name], FIFO, *ALWAYS]):
        folder = tmp_path / str(number)
        put(folder / name, data)
        problems[data[:60]] = find_problem(READERS[name], folder)
    assert {data: text for data, text in problems.items() if text} == {}


def test_limits_admit_real_files(tmp_path):
    assert limits.parse_json(b"[" * 100 + b"]" * 100)
    np.save(tmp_path / "x.npy", np.asfortranarray([[0, 1, 2], [3, 4, 5]]))
    assert limits.open_array(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_large_ids_are_refused():
    """A list with a name for each id below 2^31 takes 16 GiB."""
    pytest.importorskip("tokenizers")
    file = {"decoder": DECODER, "model": {"type": "BPE", "vocab": {"a": 2**24}, "merges": []}}
    with pytest.raises(ValueError, match="16,777,216"):
        JsonPieces(json.dumps(file).encode())
