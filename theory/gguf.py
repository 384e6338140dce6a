"""Header of a GGUF file as the entries of a config.json; tensors are not read.

Format: github.com/ggml-org/ggml, docs/gguf.md, version 2 and 3, little-endian.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from utils.limits import check_file

_SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
_STRING, _ARRAY = 8, 9
_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight")

# Entries of a config.json, and the keys of GGUF after the name of the architecture.
_NAMES = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base",
    "rotary_dim": "rope.dimension_count",
}
_TYPES = {"gptneox": "gpt_neox", "deepseek2": "deepseek_v3", "gemma3": "gemma3_text"}


def read_config(path: Path) -> dict[str, Any]:
    """Return the entries of a config.json that a GGUF file's header implies.

    llama.cpp stores the frequencies of Llama 3.1 and LongRoPE as a tensor of factors, which becomes
    a `longrope`. Its default base is 10000.

    Raises:
      ValueError: if it is not a GGUF file, or ends early.
    """
    check_file(path)
    with path.open("rb") as file:
        try:
            values, factors = _read_header(file)
        except (struct.error, UnicodeDecodeError, MemoryError) as error:
            raise ValueError(f"{path}: not a complete GGUF file ({error})") from None
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        raise ValueError(f"{path}: the header lacks general.architecture")
    config: dict[str, Any] = {"model_type": _TYPES.get(architecture, architecture)}
    for name, key in _NAMES.items():
        value = values.get(f"{architecture}.{key}")
        config[name] = value[0] if isinstance(value, list) and value else value
    scaling = f"{architecture}.rope.scaling."
    kind, factor = values.get(f"{scaling}type", "none"), values.get(f"{scaling}factor")
    original = values.get(f"{scaling}original_context_length")
    if config["rope_theta"] is None:
        config["rope_theta"] = 10_000.0
    if factors is not None:
        config["rope_scaling"] = {"rope_type": "longrope", "attention_factor": 1.0} | dict.fromkeys(
            ("short_factor", "long_factor"), factors
        )
    elif kind in ("linear", "yarn") and factor:
        config["rope_scaling"] = {"rope_type": kind, "factor": factor}
        config["rope_scaling"]["original_max_position_embeddings"] = original
    return {name: value for name, value in config.items() if value is not None}


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], list[float] | None]:
    """Return the metadata without long arrays, and the factors of the frequencies."""
    magic, version, num_tensors, num_values = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version not in (2, 3):
        raise struct.error(f"magic {magic!r}, version {version}; 2 and 3 are read")
    values = {_read_string(file): _read_value(file) for _ in range(num_values)}
    offsets = {}
    for _ in range(num_tensors):
        name, (dimensions,) = _read_string(file), struct.unpack("<I", file.read(4))
        *shape, dtype, offset = struct.unpack(f"<{dimensions}QIQ", file.read(8 * dimensions + 12))
        offsets[name] = (shape, dtype, offset)
    factors = next((offsets[name] for name in _FACTORS if name in offsets), None)
    if factors is None or factors[1] != 0:  # 0 is float32
        return values, None
    alignment = values.get("general.alignment", 32)
    file.seek(-(-file.tell() // alignment) * alignment + factors[2])
    return values, np.frombuffer(file.read(4 * factors[0][0]), "<f4").astype(float).tolist()


def _read_string(file: BinaryIO) -> str:
    (size,) = struct.unpack("<Q", file.read(8))
    if size > 2**24:
        raise struct.error(f"a text of {size} bytes")
    return file.read(size).decode()


def _read_value(file: BinaryIO, kind: int | None = None) -> Any:
    """Read one value; a long array (a vocabulary) is skipped and becomes an empty list."""
    if kind is None:
        (kind,) = struct.unpack("<I", file.read(4))
    if kind == _STRING:
        return _read_string(file)
    if kind != _ARRAY:
        code = _code(kind)
        return struct.unpack(code, file.read(struct.calcsize(code)))[0]
    element, count = struct.unpack("<IQ", file.read(12))
    if count <= 2**12 or element in (_STRING, _ARRAY):
        values = []
        for _ in range(count):
            value = _read_value(file, element)
            if count <= 2**12:
                values.append(value)
        return values
    file.seek(count * struct.calcsize(_code(element)), 1)
    return []


def _code(kind: int) -> str:
    if kind >= len(_SCALARS):
        raise struct.error(f"unknown type {kind}")
    return f"<{_SCALARS[kind]}"
