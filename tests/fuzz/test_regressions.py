"""Inputs that once made a reader fail."""

import gzip
import hashlib
import io
import json
import lzma
import math
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from ropewalk.data import json_lines
from ropewalk.data.store import TokenStore
from ropewalk.data.tokenizer_json import JsonPieces, template
from ropewalk.experiment.config import to_dict
from ropewalk.utils import limits, manifest
from tests.fuzz import targets as fuzz_targets
from tests.fuzz.targets import _HF as HF
from tests.fuzz.targets import _ROW as ROW
from tests.fuzz.targets import FIFO, TINY, targets
from tests.in_process import limit_time


def npy(shape, data=bytes(8), descr="<f8") -> bytes:
    """Return an array whose header says another shape than its data has."""
    buffer = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + data


def npz(**arrays: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def hf(**changes) -> bytes:
    return json.dumps(HF | changes).encode()


PIB8 = (2**50,)
ZEROS = ("zero_LN", "zero_low_LN", "zero_high_LN", "distances_M")
NESTED = [b"[" * n + b"]" * n for n in (101, 500, 5_000, 100_000)]
NESTED += [b'{"a":' * n + b"1" + b"}" * n for n in (500, 100_000)]
JSON_FILES = ("config", "sweep", "metrics", "commands", "results", "study_row", "token_store")
JSON_FILES += ("digests", "tokenizer_json", "safetensors_index", "hf_import")
JSON_FILES += ("logit_check", "frequencies_json")
NO_FILE = ("study_row", "token_store", "digests", "jsonl")

INPUTS = {
    **{name: list(NESTED) for name in JSON_FILES},
    "starts": [npy(PIB8), npy((-1, -1)), npy((2**62, 0)), b"\x93NUMPY"],
    "frequencies": [npy(PIB8), npy((2**40, 0), b""), npy((2,), bytes(16), "V8")],
    "probe": [npz(step=npy((), bytes(8), "<i8"), **dict.fromkeys(ZEROS, npy(PIB8)))],
}
STORE = {"format": 1, "fingerprint": "x", "bos_id": 1, "dtype": "<u2", "shards": [], "files": {}}
for change in (
    *({"shards": [{"name": "../x", "tokens": 1, "documents": 1}]}, {"shards": [{"name": "x"}]}),
    *({"dtype": "<u3"}, {"bos_id": []}, {"files": {"x": {}}}, {"files": {"/etc/passwd": 1}}),
    *({"files": [1]},),
    *({name: None} for name in STORE),
):
    INPUTS["token_store"].append(json.dumps(STORE | change).encode())
for values in ([0, 99], [5, 0], [0, 0], [-1, 2]):
    INPUTS["starts"].append(npy((2,), np.array(values).tobytes(), "<i8"))
DECODER = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}
for part in ({"decoders": [1]}, {"type": ["x"]}, {"type": "\x1b[2J" * 99}, {"decoders": 1}):
    file = {"decoder": DECODER | part, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    ends = template(["a"], ["a"], {"a": 0})
    INPUTS["tokenizer_json"].append(json.dumps(file | {"post_processor": ends}).encode())
ends["special_tokens"]["a"]["ids"] = [math.inf]
INPUTS["tokenizer_json"].append(json.dumps(file | {"post_processor": ends}).encode())
INPUTS["tokenizer_json"] += [b'{"model": {"vocab": {"a": []}}}', b'{"model": {"vocab": [1]}}']
INPUTS["tokenizer_config"] = [
    *(b'{"eos_token_id": [[]]}', json.dumps({"eos_token": "a" * 400}).encode()),
]
for name in ("a" * 400, "\x1b[2J", "\ud800", "../x", ["x"]):
    INPUTS["safetensors_index"].append(json.dumps({"weight_map": {"a": name}}).encode())
INPUTS["hf_import"] += [hf(hidden_size=2**62), hf(rope_parameters=1), hf(vocab_size=2**62)]
INPUTS["hf_import"] += [
    hf(rope_scaling={"rope_type": "yarn", "factor": 2, "attention_factor": "a" * 400}),
    hf(partial_rotary_factor=1e12),
    hf(layer_types=[["x"], {}]),
]
INPUTS["hf_import"] += [hf(num_hidden_layers=10**9), hf(model_type=["x"])]
INPUTS["hf_import"] += [hf(head_dim=2**62)]
INPUTS["results"].append(json.dumps(ROW | {"rotary": "\x1b[2J"}).encode() + b"\n")
# A field without a name: a long array of an unknown type.
INPUTS["gguf"] = [struct.pack("<4sIQQQIIQ", b"GGUF", 3, 0, 1, 0, 9, 99, 2**13)]
for part, values in (
    *(("model", {"window": size}) for size in (2**31, [2**60])),
    *(("data", {"context_length": 1}), ("train", {"profile_steps": [1] * 400})),
):
    config = to_dict(TINY)
    config[part] |= values
    INPUTS["config"].append(json.dumps({"config": config}).encode())
LONG_FIELD = {"class": "experiment.config.TrainConfig", "a" * 400: 1}
INPUTS["config"].append(json.dumps({"config": LONG_FIELD}).encode())
INPUTS["hf_import"] += [hf(head_dim=2**16, rope_theta=1e308)]  # computed for 20 s


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return targets(tmp_path_factory.mktemp("fuzz"))


NAMES = sorted({*INPUTS, *JSON_FILES} | {"tokenizer_model", "tokenizer_config", "safetensors"})
NAMES = sorted({*NAMES, "gguf", "jsonl"})


def test_every_target_is_tested(known):
    assert sorted(known) == NAMES


def find_problem(read: Callable[[Path, bytes], Any], folder: Path, data: bytes) -> str:
    """Describe an outcome other than success and a ValueError of one line; empty for these."""
    try:
        with limit_time(30):
            read(folder, data)
    except ValueError as error:
        message = str(error).replace(str(folder), "")
        is_line = len(message) <= 300 and message.isprintable()
        return "" if is_line else f"{len(message)} characters: {message[:80]!r}"
    except BaseException as error:
        return repr(error)[:200]
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_known_inputs(name, known, tmp_path):
    if name == "gguf":
        pytest.importorskip("gguf")
    problems = {}
    for number, data in enumerate([*INPUTS.get(name, []), *([] if name in NO_FILE else [FIFO])]):
        (folder := tmp_path / str(number)).mkdir()
        problems[data[:60]] = find_problem(known[name], folder, data)
    assert {data: text for data, text in problems.items() if text} == {}


def test_a_line_of_a_bomb_is_not_kept(tmp_path):
    """80 MiB of zeros in 80 KB: the reader stops at the limit of a line."""
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(limits.MOST_JSON + 2**24), 1))
    (_, _, problem), *rest = json_lines.json_records(path)
    assert "a line of more than" in problem and not rest


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_of_many_lines_stops(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_DECOMPRESSED", 2**20)
    monkeypatch.setattr(limits, "MOST_RATIO", 10)
    path = tmp_path / f"x.jsonl{suffix}"
    compress = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    text = b'{"text": "a b"}\n'
    path.write_bytes(compress(text * 10_000))
    assert len(list(json_lines.json_records(path))) == 10_000
    path.write_bytes(compress(text * 100_000))
    *records, (_, _, problem) = json_lines.json_records(path)
    assert "more than 10 times" in problem and len(records) < 80_000


def test_an_array_bomb_is_refused_before_it_is_decompressed(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_ARRAYS", 2**20)
    path = tmp_path / "x.npz"
    path.write_bytes(npz(a=npy((2**18,), bytes(2**21))))
    assert path.stat().st_size < 2**14
    with pytest.raises(ValueError, match="arrays of more than 1,048,576 bytes"):
        limits.read_arrays(path, ["a"])


def test_pipes_in_a_store_are_not_waited_for(known, tmp_path):
    name = "00000.array_record"
    path = tmp_path / "store.json"
    entry = {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    path.write_text(json.dumps(manifest.seal({"files": {name: entry}})))
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="is not a regular file"):
        list(manifest.find_damages(path))
    shutil.copyfile(fuzz_targets.STORE / "store.json", path)
    with pytest.raises(ValueError, match=f"{name}: missing"):
        TokenStore(tmp_path)


def test_limits_admit_real_files(tmp_path):
    assert limits.parse_json(b"[" * 100 + b"]" * 100)
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(6).reshape(2, 3), b=np.float32(2))
    a, b = limits.read_arrays(tmp_path / "x.npz", ["a", "b"])
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]] and b == 2
    np.save(tmp_path / "x.npy", np.asfortranarray(a))
    assert limits.open_array(tmp_path / "x.npy").tolist() == a.tolist()
    with pytest.raises(ValueError, match="content"):
        limits.decompress_xz(lzma.compress(bytes(100)), limit=99)
    with pytest.raises(ValueError, match="cut short"):
        limits.decompress_xz(lzma.compress(b"abc")[:-9])


def test_large_ids_are_refused():
    """A list with a name for each id below 2^31 takes 16 GiB."""
    pytest.importorskip("tokenizers")
    file = {"decoder": DECODER, "model": {"type": "BPE", "vocab": {"a": 2**24}, "merges": []}}
    with pytest.raises(ValueError, match="16,777,216"):
        JsonPieces(json.dumps(file).encode())
