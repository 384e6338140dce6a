"""A folder's model as transformers loads it; needs the extra `hf`."""

import contextlib
import importlib.metadata
import importlib.util
import itertools
from collections.abc import Mapping
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


# Words, numbers, code with runs of spaces, scripts, and a character that is four bytes.
_PROBE = (
    "The quick brown fox, didn't it?\n\n1234 + 56 = 1290 apples\tin 2024.  Naïve café, ÅÉ\n"
    "def f(x):\n    return [y**2 for y in x if y != 'a_b']  # 中文 हिन्दी Ελληνικά 🙂"
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
    for i, name in added:
        ours = quoted(tokenizer.name_of(i)) if i < tokenizer.vocab_size else "missing"
        if i < num_ids and ours != quoted(name):
            return f"id {i} is {ours}, and transformers' {quoted(name)}"
    return ""


def load(folder: Path, config: Mapping[str, Any]) -> Any:
    """Return the model of a folder or GGUF file in float32, as transformers loads it.

    Args:
      folder: the folder or file.
      config: config.json of the model. It takes the place of a GGUF file's header, of which
        transformers ignores what scales the rotation, and the size of a head.

    Raises:
      ValueError: if transformers cannot load it.
    """
    from transformers import (  # pyright: ignore[reportMissingImports]
        CONFIG_MAPPING,
        AutoModelForCausalLM,
    )
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()
    options: dict[str, Any] = {"use_safetensors": True}
    try:
        if folder.is_file():
            made = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
            options = {"gguf_file": folder.name, "config": made}
        return AutoModelForCausalLM.from_pretrained(
            folder.parent if folder.is_file() else folder,
            dtype="float32",
            attn_implementation="eager",
            trust_remote_code=False,
            **options,
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
