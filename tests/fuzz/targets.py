"""Readers of files that others may have written."""

import functools
import json
import lzma
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ropewalk import evals
from ropewalk.configs import find_config
from ropewalk.data import chat, json_lines, store
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer_json import template
from ropewalk.evals import rows
from ropewalk.experiment import items
from ropewalk.experiment.records import read_sweep
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop import check, hf_config, tensors, tokenizer_files
from ropewalk.interop.gguf import GgufFile
from ropewalk.interop.layers import imported_layers
from ropewalk.model import rotary
from ropewalk.reporting import commands, inside
from ropewalk.studies import rows as study_rows
from ropewalk.utils import manifest
from tests.data.helpers import make_store

ROOT = Path(__file__).parents[2]
RUN = ROOT / "notebooks" / "runs" / "base=10,num_heads=1"
TINY = find_config("tiny")


FIFO = b"a pipe, not a file"


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """Return a function that writes the content as `name` and calls `read` with the folder."""

    def write_and_read(folder: Path, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path) if data == FIFO else path.write_bytes(data)
        read(folder)

    return write_and_read


def _config(folder: Path) -> None:
    run = RunDirectory(folder)
    config = run.config
    run.positions_at(config.train.num_steps)
    config.model.position_table(config.data.context_length)
    commands.train_command(folder)


def _metrics(folder: Path) -> None:
    shutil.copy(RUN / "config.json", folder)
    run = RunDirectory(folder)
    run.read_metrics()
    run.diverged_at  # noqa: B018 - computed on access


def _commands(folder: Path) -> None:
    shutil.copy(RUN / "config.json", folder)
    for line in commands.repeat([folder], "python report.py x"):
        assert line.isprintable(), "a line with control characters"


def _results(folder: Path) -> None:
    columns = rows.read(folder / "results.jsonl")
    for name in {*columns["task"].tolist()}:
        evals.parse(name)
    for name in ("task", "run", "rotary"):
        assert all(map(str.isprintable, columns[name].tolist())), "a name with control characters"


def _study_row(folder: Path, data: bytes) -> None:
    path = folder / "x.jsonl.xz"
    path.write_bytes(data if data[:2] == b"\xfd7" else lzma.compress(data, preset=0))
    study_rows.read(path)


@functools.cache
def _store(root: Path) -> Path:
    path = root / "store"
    make_store(path, [[3, 4, 5], [6, 7]])
    return path


def _sealed(read: Callable[[Path], Any], name: str, key: str = "sha256"):
    """Return a function that gives a JSON object its checksum, writes it and reads the folder."""

    def write_and_read(folder: Path, data: bytes) -> None:
        try:
            record = json.loads(data)
            if isinstance(record, dict):
                manifest.unseal(record, key)
                data = json.dumps(manifest.seal(record, key)).encode()
        except (ValueError, RecursionError):
            pass
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        read(folder)

    return write_and_read


def _token_store(folder: Path) -> None:
    for path in STORE.iterdir():
        if path.name != "store.json":
            shutil.copy(path, folder)
    list(manifest.find_damages(folder / "store.json"))
    tokens = store.TokenStore(folder)
    if tokens.num_documents:
        tokens.document(0)
        tokens.document(tokens.num_documents - 1)


def _starts(folder: Path) -> None:
    shutil.copytree(STORE, folder, dirs_exist_ok=True, ignore=lambda *_: ["00000.starts.npy"])
    tokens = store.TokenStore(folder)
    tokens.document(0)
    tokens.document(1)


def _zeros(folder: Path) -> None:
    run = SimpleNamespace(path=folder, steps=lambda: [2])
    inside.read_zeros(SimpleNamespace(runs=[run], measurements=[]))  # pyright: ignore


def _tokenizer(folder: Path) -> None:
    path = tokenizer_files.find_tokenizer(folder)
    tokenizer = Tokenizer(path, chat_template=chat.read_template(folder)) if path else None
    if tokenizer and tokenizer.vocab_size < 10_000:
        tokenizer.decode(tokenizer.encode("a b"))
        tokenizer.piece_bytes  # noqa: B018 - computed on access


def _tokenizer_config(folder: Path) -> None:
    file = _TOKENIZER_JSON | {"post_processor": None}
    (folder / "tokenizer.json").write_text(json.dumps(file))
    _tokenizer(folder)


def _hf_import(folder: Path) -> None:
    imported_layers(hf_config.read_config(folder))


def _gguf(folder: Path) -> None:
    try:
        file = GgufFile(folder / "x.gguf")
    except ValueError as error:
        assert "pip install gguf" not in str(error), error
        raise
    config = file.read_config()
    imported_layers(config | {"vocab_size": 96, "intermediate_size": 96})


def _logit_check(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(_HF))
    check.check_record(folder, "0")


def _compressed(folder: Path, data: bytes) -> None:
    name = "x.jsonl"
    name += {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}.get(data[:2], "")
    (folder / name).write_bytes(data)
    for _, record, problem in json_lines.json_records(folder / name):
        assert problem is None or len(problem) <= 300, f"a problem of {len(problem)} characters"
        assert problem or record["text"]


_ROW = {
    name: {str: "kv", int: 2, float: 0.5, bool: True}[kind] for name, kind in rows.SCHEMA.items()
} | {"rank": 0}
_HF = {
    **{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96},
    **{"num_hidden_layers": 2, "max_position_embeddings": 128, "intermediate_size": 128},
}
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_TOKENIZER_JSON = {
    "version": "1.0",
    "added_tokens": [
        {"id": 258, "content": "<s>", "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
    ],
    "post_processor": template(["<s>"], ["<s>"], {"<s>": 258}),
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {
        "type": "BPE",
        "vocab": {name: i for i, name in enumerate([*_BYTES, "a", "b", "<s>"])},
        "merges": [],
        "byte_fallback": True,
    },
}
STORE = Path()  # set by `targets`


def targets(folder: Path) -> dict[str, Callable[[Path, bytes], Any]]:
    """Return readers by name; each is called with an empty folder and the content of a file.

    `folder` keeps files that they share.
    """
    global STORE
    STORE = _store(folder)

    def frequencies(suffix: str) -> Callable[[Path, bytes], Any]:
        name = f"x.{suffix}"
        return _file(name, lambda f: rotary.parse_pattern(f"explicit(file='{f}/{name}')"))

    return {
        "config": _file("config.json", _config),
        "sweep": _file("sweep.json", read_sweep),
        "metrics": _file("metrics.jsonl", _metrics),
        "commands": _file("commands.jsonl", _commands),
        "results": _file("results.jsonl", _results),
        "study_row": _study_row,
        "token_store": _sealed(_token_store, "store.json"),
        "starts": _file("00000.starts.npy", _starts),
        "frequencies": frequencies("npy"),
        "frequencies_json": frequencies("json"),
        "probe": _file("probes/matching_keys.npz", _zeros),
        "digests": _sealed(
            lambda f: items.metrics_record(RunDirectory(f), 1),
            "checkpoints/1/digests/metadata",
            "checksum",
        ),
        "tokenizer_model": _file("tokenizer.model", _tokenizer),
        "tokenizer_json": _file("tokenizer.json", _tokenizer),
        "tokenizer_config": _file("tokenizer_config.json", _tokenizer_config),
        "safetensors": _file("model.safetensors", tensors.Tensors),
        "safetensors_index": _file("model.safetensors.index.json", _indexed),
        "gguf": _file("x.gguf", _gguf),
        "hf_import": _file("config.json", _hf_import),
        "logit_check": _file("logit_check.json", _logit_check),
        "jsonl": _compressed,
    }


def _indexed(folder: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "b.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    tensors.Tensors(folder)
