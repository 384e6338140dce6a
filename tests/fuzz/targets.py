"""Readers of files that others may have written, with small real files as seeds."""

import contextlib
import functools
import gzip
import io
import json
import lzma
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import zstandard

from ropewalk import evals
from ropewalk.configs import find_config
from ropewalk.data import chat, json_lines, store
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer_json import template
from ropewalk.evals import rows
from ropewalk.experiment import items, overrides
from ropewalk.experiment.config import to_dict
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


class Target(NamedTuple):
    """A reader.

    Attributes:
      read: called with an empty folder and the content of a file.
      seeds: contents that it accepts.
    """

    read: Callable[[Path, bytes], Any]
    seeds: list[bytes]


FIFO = b"a pipe, not a file"


def _text(read: Callable[[str], Any]) -> Callable[[Path, bytes], Any]:
    return lambda folder, data: read(data.decode(errors="surrogateescape"))


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """Return a function that writes the content as `name` and calls `read` with the folder."""

    def write_and_read(folder: Path, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path) if data == FIFO else path.write_bytes(data)
        read(folder)

    return write_and_read


def _override(text: str) -> None:
    overrides.apply(TINY, [text])
    overrides.grid([text])


def _expression(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return rotary.parse_pattern(text)
    return evals.parse(text)


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


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def _arrays(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def safetensors_file(header: Any, data: bytes = b"") -> bytes:
    """Return a file with a header of JSON."""
    text = _json(header)
    return struct.pack("<Q", len(text)) + text + data


def gguf_file(values: dict[str, Any]) -> bytes:
    """Return a header with texts and unsigned numbers."""

    def text(string: str) -> bytes:
        return struct.pack("<Q", len(string)) + string.encode()

    body = b""
    for name, value in values.items():
        kind = struct.pack("<I", 8 if isinstance(value, str) else 4)
        body += text(name) + kind
        body += text(value) if isinstance(value, str) else struct.pack("<I", value)
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(values)) + body


_ROW = {
    name: {str: "kv", int: 2, float: 0.5, bool: True}[kind] for name, kind in rows.SCHEMA.items()
} | {"rank": 0}
_HF = {
    **{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96},
    **{"num_hidden_layers": 2, "max_position_embeddings": 128, "intermediate_size": 128},
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
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
_TOKENIZER_FILES = {"bos_token": "<s>", "eos_token": {"content": "<s>"}, "eos_token_id": [258]}
STORE = Path()  # set by `targets`


def targets(folder: Path) -> dict[str, Target]:
    """Return the targets by name; `folder` keeps files that they share."""
    global STORE
    STORE = _store(folder)
    digests = json.loads((RUN / "checkpoints" / _step() / "digests" / "metadata").read_bytes())
    zeros = dict.fromkeys(("zero_LN", "zero_low_LN", "zero_high_LN"), np.ones((1, 1)))
    study_row = min((ROOT / "studies/capability/rows").glob("*.xz"), key=lambda p: p.stat().st_size)
    text = b'{"text": "a b", "meta": {"set": ["x", 1]}}\n'
    return {
        "override": Target(
            _text(_override),
            [
                b"model.rotary=yarn(base=1e4,factor=4,original_context_length=32)",
                b"evals.tasks=[kv,needle(haystack=noise)]",
            ],
        ),
        "expression": Target(
            _text(_expression),
            [b"kv", b"[rope(base=1e4),nope]", b"explicit(values=(1.0,0.5))", b"vt"],
        ),
        "config": Target(
            _file("config.json", _config),
            [(RUN / "config.json").read_bytes(), _json({"config": to_dict(TINY)})],
        ),
        "sweep": Target(
            _file("sweep.json", read_sweep),
            [_json({"config": "tiny", "overrides": ["seed=0,1"], "members": ["seed=0", "seed=1"]})],
        ),
        "metrics": Target(
            _file("metrics.jsonl", _metrics),
            [b'{"step": 1, "tokens": 64, "loss": 5.5, "skipped": 1}\n' * 2],
        ),
        "commands": Target(
            _file("commands.jsonl", _commands), [(RUN / "commands.jsonl").read_bytes()]
        ),
        "results": Target(_file("results.jsonl", _results), [_json(_ROW) + b"\n"]),
        "study_row": Target(_study_row, [lzma.decompress(study_row.read_bytes()).splitlines()[0]]),
        "token_store": Target(
            _sealed(_token_store, "store.json"), [(STORE / "store.json").read_bytes()]
        ),
        "starts": Target(
            _file("00000.starts.npy", _starts), [(STORE / "00000.starts.npy").read_bytes()]
        ),
        "frequencies": Target(
            _file("x.npy", lambda f: rotary.parse_pattern(f"explicit(file='{f}/x.npy')")),
            [_array(np.array([1.0, 0.5])), _array(np.array([1, 2]))],
        ),
        "frequencies_json": Target(
            _file("x.json", lambda f: rotary.parse_pattern(f"explicit(file='{f}/x.json')")),
            [b"[1, 0.5]", b'{"inv_freq": [1, 0.5]}'],
        ),
        "probe": Target(
            _file("probes/matching_keys.npz", _zeros),
            [_arrays(step=2, distances_M=np.arange(4), **zeros)],
        ),
        "digests": Target(
            _sealed(
                lambda f: items.metrics_record(RunDirectory(f), 1),
                "checkpoints/1/digests/metadata",
                "checksum",
            ),
            [_json(digests)],
        ),
        "tokenizer_model": Target(
            _file("tokenizer.model", _tokenizer), [(RUN / "tokenizer.model").read_bytes()]
        ),
        "tokenizer_json": Target(_file("tokenizer.json", _tokenizer), [_json(_TOKENIZER_JSON)]),
        "tokenizer_config": Target(
            _file("tokenizer_config.json", _tokenizer_config), [_json(_TOKENIZER_FILES)]
        ),
        "safetensors": Target(
            _file("model.safetensors", tensors.Tensors),
            [
                safetensors_file(
                    {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)
                )
            ],
        ),
        "safetensors_index": Target(
            _file("model.safetensors.index.json", _indexed),
            [_json({"metadata": {"total_size": 8}, "weight_map": {"a": "b.safetensors"}})],
        ),
        "gguf": Target(
            _file("x.gguf", _gguf),
            [
                gguf_file(
                    {
                        **{"general.architecture": "llama", "llama.block_count": 2},
                        **{"llama.embedding_length": 64, "llama.attention.head_count": 4},
                        **{"llama.context_length": 128, "tokenizer.ggml.model": "gpt2"},
                    }
                )
            ],
        ),
        "hf_import": Target(
            _file("config.json", _hf_import), [_json(_HF), _json({**_HF, "rope_scaling": _YARN})]
        ),
        "logit_check": Target(
            _file("logit_check.json", _logit_check), [_json({"tensors": "0", "config": _HF})]
        ),
        "jsonl": Target(
            _compressed,
            [text, gzip.compress(text, mtime=0), zstandard.ZstdCompressor().compress(text)],
        ),
    }


def _indexed(folder: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    (folder / "b.safetensors").write_bytes(safetensors_file(header, bytes(8)))
    tensors.Tensors(folder)


def _step() -> str:
    return min(path.name for path in (RUN / "checkpoints").iterdir())
