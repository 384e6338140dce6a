"""Read a GGUF file (llama.cpp) as a Hugging Face folder: tensors, config.json and tokenizer files.

Tensors are dequantized to float32, one at a time, by the package `gguf`. llama.cpp stores the query
and key rows of `llama` with the two features of a pair side by side; `GgufTensors.read` restores
transformers' order.
"""

import functools
import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np

from ropewalk.interop.rotary_config import add_version_4_keys
from ropewalk.interop.tensors import Tensor, Tensors
from ropewalk.interop.weights import feature_order
from ropewalk.utils.checks import Bounds, Count, Layers, Positive, problem
from ropewalk.utils.limits import check_file
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
_SIZES: dict[str, Any] = {"attention.layer_norm_rms_epsilon": Positive, "block_count": Layers}
_SIZES |= {"rope.scaling.type": str, "rope.dimension_count": Count}
_SIZES |= {"rope.scaling.original_context_length": Count}
# Keys that decide the rotation.
_ROPE_KEYS = ("rope.freq_base", "rope.dimension_count", "rope.scale_linear", "rope.scaling.type")
_ROPE_KEYS += ("rope.scaling.factor", "rope.scaling.original_context_length")
_ROPE_KEYS += ("rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast")
_ROPE_KEYS += ("rope.scaling.yarn_beta_slow", "rope.scaling.finetuned")
_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
# Keys that are read elsewhere, or do not change the logits of a dense model if they are 0.
_OTHER_KEYS = ("attention.value_length", "attention.layer_norm_epsilon", "vocab_size")
_NOT_IMPORTED = ("attention.sliding_window", "attention.layer_norm_epsilon")
_ZERO = ("expert_count", "expert_used_count")
# Types of values in a header, and the most values that `gguf` reads in some seconds.
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


class GgufFile:
    """Header of a GGUF file.

    Attributes:
      path: of the file.
      metadata: its values by name.
      tensors: its tensors, as the package `gguf` has them, but factors of frequencies.
      architecture: the model type by which its keys are named.
      values: the metadata under the name of the architecture.

    Raises:
      ValueError: if `gguf` is missing or the file is damaged.
    """

    def __init__(self, path: Path):
        gguf = _import_gguf()
        try:
            check_file(path)
            _check_counts(path)
            reader = gguf.GGUFReader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
            self.architecture = str(self.metadata["general.architecture"])
            self.tensors = [t for t in reader.tensors if t.name not in _FACTORS]
            self._factors = {
                tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                .ravel()
                .tolist()
                for tensor in reader.tensors
                if tensor.name in _FACTORS
            }
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror or 'cannot be read'}") from None
        except Exception as error:  # the package raises many kinds for damage
            raise ValueError(
                f"{path} is not a GGUF file, or damaged ({one_line(str(error), 80)}); download it "
                "again"
            ) from None
        self.path = path
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
        for name, value in self.values.items():
            known = name in (*_KEYS, *_OTHER_KEYS, *_ROPE_KEYS) or (name in _ZERO and not value)
            known = known and not (strict and name in _NOT_IMPORTED)
            if not known and (strict or name.startswith(("rope.", "attention."))):
                self.refuse(name)
        config = {}
        for name, key in _KEYS.items():
            value = self.values.get(name)
            if isinstance(value, list):  # one for each layer; 0 in layers without attention
                value = max((x for x in value if isinstance(x, int)), default=None)
            if value is not None:
                if wrong := problem(value, _SIZES.get(name, Count)):
                    raise ValueError(f"{self.path}: {self._key(name)} must be {wrong}")
                config[key] = value
        required = ["block_count", "embedding_length", "attention.head_count", "context_length"]
        required += ["attention.layer_norm_rms_epsilon", "feed_forward_length"] * strict
        for name in required:
            if _KEYS[name] not in config:
                raise ValueError(f"{self.path} lacks {self._key(name)}; download it again")
        # llama.cpp's defaults; classes of transformers have others.
        heads = config["num_attention_heads"]
        config.setdefault("head_dim", config["hidden_size"] // heads)
        config.setdefault("num_key_value_heads", heads)
        rope = self._rope(config["head_dim"], config["max_position_embeddings"])
        return {"model_type": self.architecture, **config, **rope}

    def refuse(self, name: str) -> NoReturn:
        """Raise ValueError for a key under the name of the architecture."""
        raise ValueError(
            f"{self.path}: {self._key(name)}={quoted(self.values.get(name), 40)} is not supported; "
            "use the model's Hugging Face folder"
        )

    def _key(self, name: str) -> str:
        return one_line(f"{self.architecture}.{name}", 80)

    def _rope(self, head_dim: int, context: int) -> dict[str, Any]:
        """Return the keys of config.json that rotate as llama.cpp does (ggml's `ggml_rope_ext`)."""
        values = {name: x for name in _ROPE_KEYS if (x := self.values.get(name)) is not None}
        for name, value in values.items():
            hint = _SIZES.get(name, Positive)
            if name != "rope.scaling.finetuned" and (wrong := problem(value, hint)):
                raise ValueError(f"{self.path}: {self._key(name)} must be {wrong}")
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
        if kind == "yarn" and not self._factors:
            temperature = 0.1 * math.log(max(factor, 1.0)) + 1
            rope |= stretched | {"rope_type": kind}
            rope["attention_factor"] = attention_factor * temperature
            for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0)):
                rope[name] = values.get(f"rope.scaling.yarn_{name}", default)
        elif self._factors and kind in ("none", "linear", "longrope"):
            both = self._factors.get("rope_freqs.weight")
            names = [f"rope_factors_{length}.weight" for length in ("short", "long")]
            short, long = (both or self._factors.get(name, []) for name in names)
            lists = {"short_factor": short or long, "long_factor": long or short}
            rope |= {name: [factor * x for x in factors] for name, factors in lists.items()}
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


def _check_counts(path: Path) -> None:
    """Raise ValueError for a header with more values than the file or a model can have.

    The package `gguf` would loop over them for hours.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size

        def read(code: str) -> tuple:
            return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))

        def skip(num_bytes: int) -> None:
            if file.tell() + num_bytes > size:
                raise ValueError("it ends early")
            file.seek(num_bytes, os.SEEK_CUR)

        magic, version, _, num_values = read("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}; versions 2 and 3 are read")
        total = 0
        for _ in range(num_values):
            skip(*read("Q"))
            (kind,), count = read("I"), 1
            if kind == _ARRAY:
                kind, count = read("IQ")
            total += count
            if total > _MOST_VALUES or kind == _ARRAY:
                raise ValueError(f"more than {_MOST_VALUES:,} values, or an array of arrays")
            if kind == _STRING:
                for _ in range(count):
                    skip(*read("Q"))
            else:
                skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))


class GgufTensors(Tensors):
    """The tensors of a GGUF file with their names, shapes and order in a Hugging Face folder.

    Attributes:
      folder: path of the file.
      known: shape and dtype (float32) of each tensor.
      metadata: the file's metadata.

    Raises:
      ValueError: if `gguf` is missing, the file is damaged, or it has a tensor that no model of
        ours has.
    """

    def __init__(self, path: Path):  # pyright: ignore[reportMissingSuperCall] - another format
        self._file = GgufFile(path)
        self.folder, self._dequantize = path, _import_gguf().quants.dequantize
        self.metadata, self.architecture = self._file.metadata, self._file.architecture
        if self.architecture not in _IMPORTED:
            raise ValueError(
                f"{path}: GGUF files of architecture {quoted(self.architecture, 30)} are not "
                f"imported (allowed: {', '.join(_IMPORTED)}); import the model's Hugging "
                "Face folder"
            )
        self._tensors = {self._hf_name(tensor.name): tensor for tensor in self._file.tensors}
        self.known = {
            name: Tensor(tuple(map(int, tensor.shape[::-1])), np.dtype(np.float32))
            for name, tensor in self._tensors.items()
        }

    def _hf_name(self, name: str) -> str:
        """Return the name of a tensor in a Hugging Face folder."""
        *prefix, part, kind = name.split(".") if "." in name else ("", name)
        if not prefix and part in _OUTSIDE:
            return f"{_OUTSIDE[part]}.{kind}"
        if len(prefix) == 2 and prefix[0] == "blk" and part in _IN_LAYER:
            return f"model.layers.{prefix[1]}.{_IN_LAYER[part]}.{kind}"
        raise ValueError(f"{self.folder}: the tensor {quoted(name)} is not part of our models")

    def read(self, name: str) -> np.ndarray:
        """Return a tensor in float32, with query and key rows in transformers' order."""
        tensor = self._tensors[name]
        try:
            array = self._dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ValueError(f"{self.folder}: {quoted(tensor.name)}: {error}") from None
        array = np.asarray(array, np.float32).reshape(self.known[name].shape)
        if self.architecture not in _PERMUTED or not name.endswith(
            ("q_proj.weight", "k_proj.weight")
        ):
            return array
        H = self.config["head_dim"]
        back = np.argsort(feature_order("interleaved", H, H))
        return array.reshape(-1, H, *array.shape[1:])[:, back].reshape(array.shape)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The config.json of the model.

        Raises:
          ValueError: naming a key of the metadata that no model of ours has.
        """
        config, values = self._file.read_config(strict=True), self._file.values
        head_dim = config["head_dim"]
        if values.get("rope.dimension_count", head_dim) != head_dim:
            raise ValueError(
                f"{self.folder}: partial rotation ({values['rope.dimension_count']} of {head_dim} "
                "features) is not supported; import the model's Hugging Face folder"
            )
        if "model.embed_tokens.weight" not in self.known:
            raise ValueError(f"{self.folder} lacks the tensor token_embd.weight; download it again")
        return {
            **config,
            "vocab_size": self.known["model.embed_tokens.weight"].shape[0],
            "hidden_act": "silu",
            "tie_word_embeddings": "lm_head.weight" not in self.known,
        }

    def _special_ids(self) -> dict[str, int]:
        """Return the ids of special tokens by name."""
        names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown", "eot": "eot"}
        pieces, ids = self.metadata.get("tokenizer.ggml.tokens"), {}
        size = self.known["model.embed_tokens.weight"].shape[0]
        size = min(size, len(pieces)) if isinstance(pieces, list) else size
        for name, key in names.items():
            i = self.metadata.get(f"tokenizer.ggml.{key}_token_id")
            if i is not None:
                if wrong := problem(i, Annotated[int, Bounds(at_least=0, at_most=size - 1)]):
                    raise ValueError(f"{self.folder}: the id of {name} must be {wrong}")
                ids[name] = i
        return ids

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
            return {}, (
                f"{self.folder}: a tokenizer of kind {quoted(kind)} ({quoted(pre)}) is not read "
                f"from GGUF files (allowed: gpt2 with {', '.join(_WORDS)})"
            )
        pieces, types, merges = (
            self._list(f"tokenizer.ggml.{name}", kind)
            for name, kind in (("tokens", str), ("token_type", int), ("merges", str))
        )
        if len(pieces) != len(types):
            raise ValueError(
                f"{self.folder}: {len(pieces):,} tokens and {len(types):,} types of tokens; "
                "download it again"
            )
        ids = self._special_ids()
        special = {f"{name}_token": pieces[i] for name, i in ids.items() if name != "eot"}
        generation: dict[str, Any] = {
            f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad") if name in ids
        }
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            # llama.cpp puts it before the texts of Llama 3, if a file does not say.
            "add_bos_token": bool(get("tokenizer.ggml.add_bos_token", pre == "llama-bpe")),
            "add_eos_token": bool(get("tokenizer.ggml.add_eos_token", False)),
            "clean_up_tokenization_spaces": False,
            "model_max_length": get(f"{self.architecture}.context_length"),
        }
        ends = list(dict.fromkeys(ids[name] for name in ("eos", "eot") if name in ids))
        if len(ends) > 1:
            generation["eos_token_id"] = ends
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

    def _list(self, name: str, kind: type) -> list[Any]:
        """Return a list of the metadata whose values have one type."""
        values = self.metadata.get(name)
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise ValueError(
                f"{self.folder}: {name} must be a list of {kind.__name__}; download it again"
            )
        return values


def _import_gguf() -> Any:
    try:
        import gguf  # pyright: ignore[reportMissingImports] - of the extra hf
    except ImportError:
        raise ValueError(
            "a GGUF file needs `gguf`: pip install gguf (or ropewalk's extra hf)"
        ) from None
    return gguf


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
