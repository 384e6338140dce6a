"""Read a GGUF file (llama.cpp) as a Hugging Face folder: tensors, config.json and tokenizer files.

Tensors are dequantized to float32, one at a time, by the package `gguf`. llama.cpp stores the query
and key rows of `llama` with the two features of a pair side by side; `GgufFile.read` restores
transformers' order.
"""

import functools
import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import numpy as np

from ropewalk.interop.rotary_config import add_version_4_keys
from ropewalk.interop.tensors import Tensor, Tensors
from ropewalk.interop.weights import feature_order
from ropewalk.utils.checks import Bounds, Count, Layers, Positive, problem
from ropewalk.utils.limits import MOST_JSON, check_file
from ropewalk.utils.messages import one_line, quoted

SUFFIX = ".gguf"
_PERMUTED = {"llama"}  # architectures whose converter stores pairs side by side
_IMPORTED = ("llama", "qwen2", "qwen3")
# Names of tensors in GGUF files and in Hugging Face folders: outside of layers, and in a layer.
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
_IN_LAYER |= {f"attn_{x}_norm": f"self_attn.{x}_norm" for x in "qk"}
_IN_LAYER |= {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
_IN_LAYER |= {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_IN_LAYER |= {"attn_output": "self_attn.o_proj"}
_EMBEDDING = "model.embed_tokens.weight"
# Keys of the metadata under the architecture's name, and those of config.json.
_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
# The values that a key may have: sizes, keys that decide the rotation, and keys that are read
# elsewhere.
_HINTS: dict[str, Any] = dict.fromkeys(_KEYS, Count) | {
    "block_count": Layers,
    "attention.layer_norm_rms_epsilon": Positive,
    "rope.freq_base": Positive,
    "rope.dimension_count": Count,
    "rope.scale_linear": Positive,
    "rope.scaling.type": str,
    "rope.scaling.factor": Positive,
    "rope.scaling.original_context_length": Count,
    "rope.scaling.attn_factor": Positive,
    "rope.scaling.yarn_beta_fast": Positive,
    "rope.scaling.yarn_beta_slow": Positive,
    **dict.fromkeys(("rope.scaling.finetuned", "attention.value_length", "vocab_size"), object),
    "attention.layer_norm_epsilon": object,
}
_NOT_IMPORTED = ("attention.sliding_window", "attention.layer_norm_epsilon")
_ZERO = ("expert_count", "expert_used_count")  # do not change the logits of a dense model if 0
_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
# Types of values in a header, and the most values of one list.
_SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
_STRING, _ARRAY, _MOST_VALUES = 8, 9, 2**21

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NO_RULE = (
    "{} names no rule that splits a text into words (tokenizer.ggml.pre); llama.cpp's default is "
    "used, which may not be the model's"
)
_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's types of tokens
_LISTS = {"tokens": str, "token_type": int, "merges": str}

# llama.cpp's for a file that does not name one (src/llama-vocab.cpp).
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
# By `tokenizer.ggml.pre`: expressions of words, as in the models' own tokenizer.json; without any,
# words are those of GPT-2.
_WORDS = {
    "default": _DEFAULT,
    "gpt-2": (),
    "smollm": (),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace("{1,3}", ""),),
}


class _Stored(NamedTuple):
    """A tensor in a file: its shape, type, and the range of its bytes."""

    shape: tuple[int, ...]
    kind: int
    begin: int
    num_bytes: int


class GgufFile(Tensors):
    """A GGUF file: its metadata, and its tensors as in a Hugging Face folder.

    Audits read the header (`read_config`) of any architecture. An import also reads `known`.

    Attributes:
      folder: path of the file.
      metadata: its values by name.
      architecture: the model type by which its keys are named.
      values: the metadata under the name of the architecture.

    Raises:
      ValueError: if `gguf` is missing or the file is damaged.
    """

    def __init__(self, path: Path):  # pyright: ignore[reportMissingSuperCall] - another format
        self._gguf, self.folder = _import_gguf(), path
        try:
            check_file(path)
            self.metadata, self._stored = _read_header(path, self._gguf.GGML_QUANT_SIZES)
            self.architecture = str(self.metadata["general.architecture"])
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror or 'cannot be read'}") from None
        except Exception as error:  # damage raises many kinds
            raise ValueError(
                f"{path} is not a GGUF file, or damaged ({one_line(str(error), 80)}); download it "
                "again"
            ) from None
        prefix = f"{self.architecture}."
        self.values = {
            name.removeprefix(prefix): _shortest(value)
            for name, value in self.metadata.items()
            if name.startswith(prefix)
        }

    def read_config(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the entries of a config.json that decide the sizes and the rotation.

        Args:
          strict: refuse every key that a dense model of ours does not have.

        Raises:
          ValueError: naming a key that is missing, has a value that no model has, or may change the
            rotation in a way that is not read.
        """
        values: dict[str, Any] = {}
        for name, value in self.values.items():
            known = name in _HINTS or (name in _ZERO and not value)
            known = known and not (strict and name in _NOT_IMPORTED)
            if not known and (strict or name.startswith(("rope.", "attention."))):
                self.refuse(name)
            if name in _KEYS and isinstance(value, list):  # by layer; 0 without attention
                value = max((x for x in value if isinstance(x, int)), default=None)
            if name in _HINTS and value is not None:
                if wrong := problem(value, _HINTS[name]):
                    raise ValueError(f"{self.folder}: {self._key(name)} must be {wrong}")
                values[name] = value
        required = ["block_count", "embedding_length", "attention.head_count", "context_length"]
        required += ["attention.layer_norm_rms_epsilon", "feed_forward_length"] * strict
        for name in required:
            if name not in values:
                raise ValueError(f"{self.folder} lacks {self._key(name)}; download it again")
        config = {key: values[name] for name, key in _KEYS.items() if name in values}
        # llama.cpp's defaults; classes of transformers have others.
        heads = config["num_attention_heads"]
        head_dim = config.setdefault("head_dim", config["hidden_size"] // heads)
        config.setdefault("num_key_value_heads", heads)
        if strict and values.get("rope.dimension_count", head_dim) != head_dim:
            self.refuse("rope.dimension_count")
        rope = self._rope(values, head_dim, config["max_position_embeddings"])
        return {"model_type": self.architecture, **config, **rope}

    def refuse(self, name: str) -> NoReturn:
        """Raise ValueError for a key under the name of the architecture."""
        raise ValueError(
            f"{self.folder}: {self._key(name)}={quoted(self.values.get(name), 40)} is not "
            "supported; use the model's Hugging Face folder"
        )

    def _key(self, name: str) -> str:
        return one_line(f"{self.architecture}.{name}", 80)

    def _rope(self, values: dict[str, Any], head_dim: int, context: int) -> dict[str, Any]:
        """Return the keys of config.json that rotate as llama.cpp does (ggml's `ggml_rope_ext`)."""
        factors = {x: self._dequantize(x).ravel().tolist() for x in _FACTORS if x in self._stored}
        rope: dict[str, Any] = {"rope_theta": float(values.get("rope.freq_base", 10_000.0))}
        size = values.get("rope.dimension_count", head_dim)
        if size != head_dim:
            rope["partial_rotary_factor"] = size / head_dim
        original = values.get("rope.scaling.original_context_length", context)
        attention_factor = values.get("rope.scaling.attn_factor", 1.0)
        kind = values.get("rope.scaling.type", "linear")  # llama.cpp's, where a file has none
        factor = values.get("rope.scaling.factor", values.get("rope.scale_linear", 1))
        factor = 1.0 if kind == "none" else float(factor)
        stretched = {"factor": factor, "original_max_position_embeddings": original}
        if kind == "yarn" and not factors:
            temperature = 0.1 * math.log(max(factor, 1.0)) + 1
            rope |= stretched | {"rope_type": kind}
            rope["attention_factor"] = attention_factor * temperature
            for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0)):
                rope[name] = values.get(f"rope.scaling.yarn_{name}", default)
        elif factors and kind in ("none", "linear", "longrope"):
            both = factors.get("rope_freqs.weight")
            names = [f"rope_factors_{length}.weight" for length in ("short", "long")]
            short, long = (both or factors.get(name, []) for name in names)
            lists = {"short_factor": short or long, "long_factor": long or short}
            rope |= {name: [factor * x for x in numbers] for name, numbers in lists.items()}
            rope |= stretched | {"rope_type": "longrope", "factor": 1.0}
            rope["attention_factor"] = attention_factor
        elif kind not in ("none", "linear"):
            self.refuse("rope.scaling.type")
        elif attention_factor != 1:
            self.refuse("rope.scaling.attn_factor")
        elif factor == 1:
            rope["rope_type"] = "default"
        else:
            rope |= {"rope_type": "linear", "factor": factor}
        keys = add_version_4_keys(rope)
        # Phi-3's class reads the original context beside rope_scaling.
        return keys | {"rope_parameters": None, "original_max_position_embeddings": original}

    def _dequantize(self, name: str) -> np.ndarray:
        """Return a tensor of the file in float32, as it is stored."""
        tensor = self._stored[name]
        content = np.fromfile(self.folder, np.uint8, tensor.num_bytes, offset=tensor.begin)
        try:
            kind = self._gguf.GGMLQuantizationType(tensor.kind)
            # By rows, of which the package takes sixteen at a time.
            rows = content.reshape(*tensor.shape[:-1], -1)
            array = self._gguf.quants.dequantize(rows, kind)
            return np.asarray(array, np.float32).reshape(tensor.shape)
        except (NotImplementedError, ValueError) as error:
            reason = one_line(str(error), 80)
            raise ValueError(f"{self.folder}: {quoted(name)}: {reason}") from None

    # --- an import ----------------------------------------------------------------------------

    @functools.cached_property
    def _names(self) -> dict[str, str]:
        """Names of tensors in the file, by those in a Hugging Face folder."""
        if self.architecture not in _IMPORTED:
            raise ValueError(
                f"{self.folder}: GGUF files of architecture {quoted(self.architecture, 30)} are "
                f"not imported (allowed: {', '.join(_IMPORTED)}); import the model's Hugging "
                "Face folder"
            )
        return {self._hf_name(name): name for name in self._stored if name not in _FACTORS}

    @functools.cached_property
    def known(self) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Shape and dtype (float32) of each tensor.

        Raises:
          ValueError: if the architecture is not imported, or a tensor is in no model of ours.
        """
        dtype = np.dtype(np.float32)
        return {x: Tensor(self._stored[name].shape, dtype) for x, name in self._names.items()}

    def _hf_name(self, name: str) -> str:
        *prefix, part, kind = name.split(".") if "." in name else ("", name)
        if not prefix and part in _OUTSIDE:
            return f"{_OUTSIDE[part]}.{kind}"
        if len(prefix) == 2 and prefix[0] == "blk" and part in _IN_LAYER:
            return f"model.layers.{prefix[1]}.{_IN_LAYER[part]}.{kind}"
        raise ValueError(f"{self.folder}: the tensor {quoted(name)} is not part of our models")

    def read(self, name: str) -> np.ndarray:
        """Return a tensor in float32, with query and key rows in transformers' order."""
        array = self._dequantize(self._names[name])
        if self.architecture not in _PERMUTED or not name.endswith(
            ("q_proj.weight", "k_proj.weight")
        ):
            return array
        H = self.config["head_dim"]
        back = np.argsort(feature_order("interleaved", H, H))
        return array.reshape(-1, H, *array.shape[1:])[:, back].reshape(array.shape)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The config.json of a model that is imported.

        Raises:
          ValueError: naming a key of the metadata that no model of ours has.
        """
        if _EMBEDDING not in self.known:
            raise ValueError(f"{self.folder} lacks the tensor token_embd.weight; download it again")
        return self.read_config(strict=True) | {
            "vocab_size": self.known[_EMBEDDING].shape[0],
            "hidden_act": "silu",
            "tie_word_embeddings": "lm_head.weight" not in self.known,
        }

    def tokenizer_files(self) -> tuple[dict[str, bytes], str]:
        """Return the tokenizer files of a Hugging Face folder by name, and a note for the user.

        Raises:
          ValueError: if the tokenizer is damaged.
        """
        get: Callable[..., Any] = self.metadata.get
        kind, pre = get("tokenizer.ggml.model"), get("tokenizer.ggml.pre", "default")
        if kind is None:
            return {}, ""
        if kind != "gpt2" or pre not in _WORDS:
            family = " (SentencePiece)" if kind in ("llama", "t5") else ""
            return {}, (
                f"{self.folder}: a tokenizer of kind {quoted(kind)}{family} ({quoted(pre)}) is not "
                f"read from GGUF files (allowed: gpt2 with {', '.join(_WORDS)}), so the run takes "
                "token ids only; for text, import the model's Hugging Face folder"
            )
        pieces, types, merges = (self._list(f"tokenizer.ggml.{name}") for name in _LISTS)
        if len(pieces) != len(types):
            raise ValueError(
                f"{self.folder}: {len(pieces):,} tokens and {len(types):,} types of tokens; "
                "download it again"
            )
        ids = self._special_ids(min(len(pieces), self.config["vocab_size"]))
        special = {f"{name}_token": pieces[i] for name, i in ids.items() if name != "eot"}
        ends = [*dict.fromkeys(ids[name] for name in ("eos", "eot") if name in ids)]
        generation: dict[str, Any] = {
            f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad") if name in ids
        }
        if len(ends) > 1:
            generation["eos_token_id"] = ends
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            # llama.cpp puts it before the texts of Llama 3, if a file does not say.
            "add_bos_token": bool(get("tokenizer.ggml.add_bos_token", pre == "llama-bpe")),
            "add_eos_token": bool(get("tokenizer.ggml.add_eos_token", False)),
            "clean_up_tokenization_spaces": False,
            "model_max_length": get(f"{self.architecture}.context_length"),
        }
        contents = {
            "tokenizer_config.json": tokenizer_config,
            "special_tokens_map.json": special,
            "generation_config.json": generation,
        }
        files = {
            name: (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
            for name, content in contents.items()
        }
        try:
            files["tokenizer.json"] = _make_tokenizer(pieces, types, merges, pre)
        except Exception as error:  # the library raises its base class
            reason = one_line(str(error), 80)
            raise ValueError(f"{self.folder}: damaged tokenizer ({reason})") from None
        if template := get("tokenizer.chat_template"):
            files["chat_template.jinja"] = str(template).encode()
        return files, _NO_RULE.format(self.folder) if pre == "default" else ""

    def _special_ids(self, num_ids: int) -> dict[str, int]:
        """Return the ids of special tokens by name."""
        keys = dict(bos="bos", eos="eos", pad="padding", unk="unknown", eot="eot")
        ids = {}
        for name, key in keys.items():
            i = self.metadata.get(f"tokenizer.ggml.{key}_token_id")
            if i is not None:
                if wrong := problem(i, Annotated[int, Bounds(at_least=0, at_most=num_ids - 1)]):
                    raise ValueError(f"{self.folder}: the id of {name} must be {wrong}")
                ids[name] = i
        return ids

    def _list(self, name: str) -> list[Any]:
        """Return a list of the metadata whose values have one type."""
        values, kind = self.metadata.get(name), _LISTS[name.rpartition(".")[2]]
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise ValueError(
                f"{self.folder}: {name} must be a list of {kind.__name__}; download it again"
            )
        return values


def _import_gguf() -> Any:
    try:
        import gguf  # pyright: ignore[reportMissingImports] - of the extra hf
    except ImportError:
        raise ValueError("a GGUF file needs gguf: pip install gguf") from None
    return gguf


def _read_header(
    path: Path, sizes: dict[int, tuple[int, int]]
) -> tuple[dict[str, Any], dict[str, _Stored]]:
    """Return the metadata and the tensors of a file by name.

    The reader of the package `gguf` would loop for hours over as many values as a damaged header
    claims to have.

    Args:
      path: the file.
      sizes: numbers and bytes of a block of each type of tensor.
    """
    with path.open("rb") as file:
        file_size = os.fstat(file.fileno()).st_size

        def read(code: str) -> tuple[Any, ...]:
            return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))

        def read_string() -> str:
            (length,) = read("Q")
            if length > min(MOST_JSON, file_size - file.tell()):
                raise ValueError("it ends early")
            return file.read(length).decode()

        def read_values(kind: int, count: int) -> list[Any]:
            if count > _MOST_VALUES or kind == _ARRAY:
                raise ValueError(f"more than {_MOST_VALUES:,} values, or an array of arrays")
            if kind == _STRING:
                return [read_string() for _ in range(count)]
            return [*read(f"{count}{_SCALARS[kind]}")]

        magic, version, num_tensors, num_values = read("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}; versions 2 and 3 are read")
        metadata: dict[str, Any] = {}
        stored: dict[str, _Stored] = {}
        for _ in range(num_values):
            name, (kind,) = read_string(), read("I")
            if name in metadata:
                raise ValueError(f"two values of {name}")
            is_list = kind == _ARRAY
            metadata[name] = read_values(*read("IQ")) if is_list else read_values(kind, 1)[0]
        for _ in range(num_tensors):
            name, (num_axes,) = read_string(), read("I")
            if name in stored or num_axes > 4:
                raise ValueError(f"two tensors {name}, or one of {num_axes} axes")
            *shape, kind, begin = read(f"{num_axes}QIQ")
            num_numbers, num_bytes = sizes[kind]
            num_bytes *= math.prod(shape) // num_numbers
            stored[name] = _Stored(tuple(shape[::-1]), kind, begin, num_bytes)
        # Ranges count from the next multiple of the alignment.
        start = file.tell() + -file.tell() % metadata.get("general.alignment", 32)
    stored = {name: x._replace(begin=start + x.begin) for name, x in stored.items()}
    if any(x.begin + x.num_bytes > file_size for x in stored.values()):
        raise ValueError("it ends early")
    return metadata, stored


def _shortest(value: Any) -> Any:
    """Return a float32 as the float that has its shortest decimal: 1e-5, not 9.99999974e-6."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _make_tokenizer(pieces: list[str], types: list[int], merges: list[str], pre: str) -> bytes:
    """Return a tokenizer.json of byte-level BPE."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    vocab = {piece: i for i, piece in enumerate(pieces)}
    pairs: Any = [tuple(merge.split(" ", 1)) for merge in merges]
    for pair in pairs:  # the library panics
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocab.keys():
            raise ValueError(f"no pieces of the merge {quoted(' '.join(pair), 30)}")
    # Llama 3 does not merge a word that is a piece from others.
    tokenizer: Any = Tokenizer(models.BPE(vocab, pairs, ignore_merges=pre == "llama-bpe"))
    splits: list[Any] = [Split(Regex(words), "isolated") for words in _WORDS[pre]]
    splits += [Digits(individual_digits=True)] * (pre == "smollm")
    byte_level = ByteLevel(add_prefix_space=False, use_regex=not _WORDS[pre])
    tokenizer.pre_tokenizer = Sequence([*splits, byte_level])
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    for piece, kind in zip(pieces, types, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            is_special = kind == _CONTROL
            tokenizer.add_tokens([AddedToken(piece, normalized=False, special=is_special)])
    return tokenizer.to_str().encode()
