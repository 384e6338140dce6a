"""A folder's model as transformers loads it; needs the extra `hf`."""

import contextlib
import importlib.metadata
import importlib.util
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils.messages import one_line, quoted

_OLDEST = (5, 23)  # as in the extra `hf`: older versions have no code that can be measured


def has_transformers() -> bool:
    """Return True if torch and a transformers that the extra `hf` allows are installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("transformers").split(".")
        has_torch = importlib.util.find_spec("torch") is not None
        return has_torch and (int(version[0]), int(version[1])) >= _OLDEST
    return False


def class_defaults(model_type: str) -> dict[str, Any] | None:
    """Return the keys of transformers' config class and their values; None if it is not there."""
    if not has_transformers():
        return None
    from transformers import CONFIG_MAPPING  # pyright: ignore[reportMissingImports]

    return CONFIG_MAPPING[model_type]().to_dict() if model_type in CONFIG_MAPPING else None


# Words, numbers, code with runs of spaces, scripts, a character that is four bytes, and U+2581.
_PROBE = (
    "The quick brown fox, didn't it?\n\n1234 + 56 = 1290 apples\tin 2024.  Naïve café, ÅÉ\n"
    "def f(x):\n    return [y**2 for y in x if y != 'a_b']  # 中文 हिन्दी Ελληνικά 🙂 \u2581"
)


def find_other_ids(folder: Path, tokenizer: Tokenizer, num_ids: int) -> str:
    """Describe the first difference between transformers' ids and ours; empty if there is none.

    Args:
      folder: a published folder.
      tokenizer: ours.
      num_ids: ids that the model has.
    """
    from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]

    try:
        theirs = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        their_ids = theirs(_PROBE, add_special_tokens=False)["input_ids"]
        added = sorted((i, name) for name, i in theirs.get_added_vocab().items())
    except Exception as error:  # the library raises many classes
        return f"transformers cannot read it ({one_line(str(error), 100)})"
    for i, name in added:
        ours = quoted(tokenizer.name_of(i)) if i < tokenizer.vocab_size else "missing"
        if i < num_ids and ours != quoted(name):
            return f"id {i} is {ours}, and transformers' {quoted(name)}"
    ids = tokenizer.encode(_PROBE)
    if ids != their_ids:
        index = next(
            i for i, pair in enumerate(itertools.zip_longest(ids, their_ids)) if len({*pair}) > 1
        )
        start = tokenizer.decode(ids[:index])[-20:]
        return (
            f"after {quoted(start)} a text has ids {ids[index : index + 4]}, and transformers' "
            f"{their_ids[index : index + 4]}"
        )
    return ""


# Keys of a GGUF file that transformers may leave out: tensors have these sizes.
_SIZES = ("attention.key_length", "attention.value_length", "rope.scaling.finetuned")


@contextlib.contextmanager
def as_folder(path: Path, parent: Path) -> Iterator[Path]:
    """Yield a folder; in place of a GGUF file, the float32 folder that transformers makes of it.

    Raises:
      ValueError: if transformers cannot convert the file, or would leave a part of it out.
    """
    if path.suffix != ".gguf":
        yield path
        return
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        try:
            from gguf import GGUFReader  # pyright: ignore[reportMissingImports]
            from transformers import AutoModelForCausalLM, AutoTokenizer  # pyright: ignore
            from transformers.integrations.ggml import GGUF_CONFIG_MAPPING  # pyright: ignore

            source, reader = {"gguf_file": path.name}, GGUFReader(path)
            kind = f"{reader.fields['general.architecture'].contents()}."
            known = {kind + key for key in (*GGUF_CONFIG_MAPPING[kind[:-1]], *_SIZES)}
            lost = [key for key in reader.fields if key.startswith(kind) and key not in known]
            lost += [x.name for x in reader.tensors if x.name.startswith("rope_")]  # Llama 3.1's
            model, info = AutoModelForCausalLM.from_pretrained(
                path.parent, **source, dtype="float32", output_loading_info=True
            )
            if lost := [*lost, *(str(name) for names in info.values() for name in names)]:
                raise ValueError(f"{lost[0]} would be left out")
            model.hf_quantizer = None  # weights are float32, which it would not write
            del model.config.quantization_config
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(path.parent, **source).save_pretrained(folder)
        except ImportError:
            raise ValueError("a GGUF file needs transformers: pip install '.[hf]'") from None
        except Exception as error:  # the libraries raise many classes
            reason = one_line(f"{type(error).__name__}: {error}", 160)
            raise ValueError(
                f"{path}: transformers cannot convert this GGUF file ({reason}); import the "
                "model's Hugging Face folder"
            ) from error
        yield Path(folder)


def load(folder: Path) -> Any:
    """Return the model of a folder in float32, as transformers loads it.

    Raises:
      ValueError: if transformers cannot load it.
    """
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder,
            dtype="float32",
            attn_implementation="eager",
            trust_remote_code=False,
            use_safetensors=True,
        ).eval()
    except Exception as error:  # the library raises many classes
        reason = one_line(str(error), 200)
        raise ValueError(f"transformers cannot load {folder} ({reason})") from error


def compute_logits(model: Any, tokens_T, positions_T) -> np.ndarray:
    """Return the logits `[T, V]` of one row, as a model of transformers computes them."""
    import torch  # pyright: ignore[reportMissingImports]

    ids, positions = (torch.from_numpy(np.asarray(x))[None] for x in (tokens_T, positions_T))
    # Without a mask, a gap in positions would begin another document.
    options = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    try:
        with torch.no_grad():
            out = model(input_ids=ids, position_ids=positions, **options)
    except (RuntimeError, IndexError, TypeError) as error:
        reason = one_line(str(error), 200)
        raise ValueError(f"transformers cannot run this model ({reason})") from error
    return out.logits[0].numpy()
