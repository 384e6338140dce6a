"""Read a GGUF file (llama.cpp) as a Hugging Face folder: tensors, config.json and tokenizer files.

Tensors are dequantized to float32, one at a time, by the package `gguf`. llama.cpp stores the query
and key rows of `llama` with the two features of a pair side by side; `GgufTensors.read` restores
transformers' order.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interop.tensors import Tensor, Tensors
from interop.weights import feature_order
from utils.limits import check_file
from utils.messages import one_line, quoted

SUFFIX = ".gguf"
_PERMUTED = {"llama"}  # architectures whose converter stores pairs side by side
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
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
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
# Keys that are read elsewhere, or do not change the logits of a dense model if they are 0.
_OTHER_KEYS = ("attention.key_length", "attention.value_length", "vocab_size", "rope.freq_base")
_OTHER_KEYS += ("rope.dimension_count", "rope.scaling.type", "rope.scaling.factor")
_OTHER_KEYS += ("rope.scaling.original_context_length", "rope.scaling.finetuned")
_ZERO = ("expert_count", "expert_used_count")

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's types of tokens


def _byte_level(use_regex: bool) -> dict[str, Any]:
    options = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **options}


def _split(*regexes: str) -> list[dict[str, Any]]:
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    return [*({**split, "pattern": {"Regex": x}} for x in regexes), _byte_level(False)]


# llama.cpp's for a file that does not name one (src/llama-vocab.cpp).
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
# By `tokenizer.ggml.pre`: the pre-tokenizers, the normalizer, and whether a word that is a piece
# is not merged from others. They are those of the models' own tokenizer.json.
_PRE_TOKENIZERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None, bool]] = {
    "default": (_split(*_DEFAULT), None, False),
    "gpt-2": ([_byte_level(True)], None, False),
    "smollm": ([{"type": "Digits", "individual_digits": True}, _byte_level(True)], None, False),
    "llama-bpe": (_split(_LLAMA3), None, True),
    "qwen2": (_split(_LLAMA3.replace("{1,3}", "")), {"type": "NFC"}, False),
}


class UnreadTokenizerError(ValueError):
    """A tokenizer of a kind that is not read from GGUF files."""


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
        gguf = _import_gguf()
        try:
            check_file(path)
            reader = gguf.GGUFReader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror or 'cannot be read'}") from None
        except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a GGUF file, or damaged ({one_line(str(error), 80)}); download it "
                "again"
            ) from None
        self.folder, self._dequantize = path, gguf.quants.dequantize
        self.architecture = str(self.metadata.get("general.architecture"))
        if self.architecture not in _CLASSES:
            raise ValueError(
                f"{path}: GGUF files of architecture {quoted(self.architecture, 30)} are not "
                f"imported (allowed: {', '.join(_CLASSES)}); import the model's Hugging "
                "Face folder"
            )
        self._tensors: dict[str, Any] = {}
        self.rope_factors: np.ndarray | None = None
        for tensor in reader.tensors:
            if tensor.name == "rope_freqs.weight":  # Llama 3's scaling, per pair
                self.rope_factors = np.array(tensor.data, np.float64)
            else:
                self._tensors[self._hf_name(tensor.name)] = tensor
        self.known = {
            name: Tensor(tuple(map(int, tensor.shape[::-1])), np.dtype(np.float32))
            for name, tensor in self._tensors.items()
        }

    def _hf_name(self, name: str) -> str:
        """Return the name of a tensor in a Hugging Face folder."""
        *prefix, part, kind = name.split(".")
        if not prefix and part in _OUTSIDE:
            return f"{_OUTSIDE[part]}.{kind}"
        if len(prefix) == 2 and prefix[0] == "blk" and part in _IN_LAYER:
            return f"model.layers.{prefix[1]}.{_IN_LAYER[part]}.{kind}"
        raise ValueError(f"{self.folder}: the tensor {quoted(name)} is not part of our models")

    def read(self, name: str) -> np.ndarray:
        """Return a tensor in float32, with query and key rows in transformers' order."""
        tensor = self._tensors[name]
        array = self._dequantize(tensor.data, tensor.tensor_type)
        array = np.asarray(array, np.float32).reshape(self.known[name].shape)
        if self.architecture not in _PERMUTED or not name.endswith(
            ("q_proj.weight", "k_proj.weight")
        ):
            return array
        H = self.config["head_dim"]
        back = np.argsort(feature_order("interleaved", H, H))
        return array.reshape(-1, H, *array.shape[1:])[:, back].reshape(array.shape)

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of the model.

        Raises:
          ValueError: naming a key of the metadata that no model of ours has.
        """
        prefix = f"{self.architecture}."
        values = {
            name.removeprefix(prefix): _shortest(value)
            for name, value in self.metadata.items()
            if name.startswith(prefix)
        }
        for name, value in values.items():
            if name not in (*_KEYS, *_OTHER_KEYS) and (name not in _ZERO or value):
                raise ValueError(
                    f"{self.folder}: {prefix}{name}={quoted(value, 40)} is not supported; import "
                    "the model's Hugging Face folder"
                )
        config = {key: values[name] for name, key in _KEYS.items() if name in values}
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
            if name not in config:
                raise ValueError(f"{self.folder} lacks the metadata of {name}; download it again")
        heads = config["hidden_size"] // config["num_attention_heads"]
        head_dim = values.get("attention.key_length", heads)
        if values.get("rope.dimension_count", head_dim) != head_dim:
            raise ValueError(
                f"{self.folder}: partial rotation ({values['rope.dimension_count']} of {head_dim} "
                "features) is not supported; import the model's Hugging Face folder"
            )
        return {
            "architectures": [_CLASSES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": self.known["model.embed_tokens.weight"].shape[0],
            **config,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "tie_word_embeddings": "lm_head.weight" not in self.known,
            "rope_parameters": self._rope(values, config.get("max_position_embeddings")),
            **{f"{name}_token_id": i for name, i in self._special_ids().items() if name != "unk"},
        }

    def _rope(self, values: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Return rope parameters."""
        rope: dict[str, Any] = {"rope_theta": float(values.get("rope.freq_base", 10_000.0))}
        kind = values.get("rope.scaling.type", "none")
        original = values.get("rope.scaling.original_context_length")
        if self.rope_factors is not None:
            factors = self.rope_factors.tolist()
            rope |= {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}
            rope |= {"factor": 1.0, "attention_factor": 1.0}
            return rope | {"original_max_position_embeddings": context}
        if kind == "none":
            return rope | {"rope_type": "default"}
        if kind not in ("linear", "yarn") or (kind == "yarn" and original is None):
            raise ValueError(f"{self.folder}: rope.scaling.type={quoted(kind)} is not supported")
        rope |= {"rope_type": kind, "factor": float(values["rope.scaling.factor"])}
        return rope | ({"original_max_position_embeddings": original} if kind == "yarn" else {})

    def _special_ids(self) -> dict[str, int]:
        """Return the ids of special tokens by name."""
        names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
        ids = {
            name: self.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()
        }
        return {name: i for name, i in ids.items() if i is not None}

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the tokenizer files of a Hugging Face folder by name.

        Raises:
          UnreadTokenizerError: if the tokenizer is neither of the kinds that are read.
        """
        get: Callable[..., Any] = self.metadata.get
        kind, pre = get("tokenizer.ggml.model"), get("tokenizer.ggml.pre", "default")
        if kind is None:
            return {}
        if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
            raise UnreadTokenizerError(
                f"{self.folder}: a tokenizer of kind {quoted(kind)} ({quoted(pre)}) is not read "
                f"from GGUF files (allowed: gpt2 with {', '.join(_PRE_TOKENIZERS)})"
            )
        pieces, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
        special = {f"{name}_token": pieces[i] for name, i in self._special_ids().items()}
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            "add_bos_token": bool(get("tokenizer.ggml.add_bos_token", False)),
            "add_eos_token": bool(get("tokenizer.ggml.add_eos_token", False)),
            "clean_up_tokenization_spaces": False,
            "model_max_length": get(f"{self.architecture}.context_length"),
        }
        generation: dict[str, Any] = {
            f"{name}_token_id": i for name, i in self._special_ids().items() if name != "unk"
        }
        turn_end = get("tokenizer.ggml.eot_token_id")
        if turn_end is not None and turn_end != generation.get("eos_token_id", turn_end):
            generation["eos_token_id"] = [generation["eos_token_id"], turn_end]
        contents = {
            "tokenizer.json": _tokenizer_json(pieces, types, get("tokenizer.ggml.merges"), pre),
            "tokenizer_config.json": tokenizer_config,
            "special_tokens_map.json": special,
            "generation_config.json": generation,
        }
        files = {
            name: (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
            for name, content in contents.items()
        }
        if template := get("tokenizer.chat_template"):
            files["chat_template.jinja"] = template.encode()
        return files


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


def _tokenizer_json(
    pieces: list[str], types: list[int], merges: list[str], pre: str
) -> dict[str, Any]:
    """Return the content of a tokenizer.json of byte-level BPE."""
    parts, normalizer, ignore_merges = _PRE_TOKENIZERS[pre]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": i, "content": piece, **flags, "special": kind == _CONTROL}
        for i, (piece, kind) in enumerate(zip(pieces, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    model = {"type": "BPE", "vocab": vocab, "merges": [merge.split(" ", 1) for merge in merges]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
        "post_processor": None,
        "decoder": _byte_level(True),
        "model": {**model, "ignore_merges": ignore_merges},
    }
