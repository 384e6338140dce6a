"""A folder's model as transformers loads it; needs the extra `hf`."""

import importlib.util
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data.tokenizer import Tokenizer
from interop.architectures import windows_by_layer
from model.config import ModelConfig
from model.rotary.base import HfHead
from model.rotary.rope_parameters import compute_frequencies, read_rope
from utils.messages import one_line, quoted


def has_transformers() -> bool:
    """Return True if transformers and torch are installed."""
    return all(importlib.util.find_spec(name) for name in ("transformers", "torch"))


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
        place = next(
            i for i, pair in enumerate(itertools.zip_longest(ids, their_ids)) if len({*pair}) > 1
        )
        start = tokenizer.decode(ids[:place])[-20:]
        return (
            f"after {quoted(start)} a text has ids {ids[place : place + 4]}, and transformers' "
            f"{their_ids[place : place + 4]}"
        )
    for i, name in added:
        ours = quoted(tokenizer.name_of(i)) if i < tokenizer.vocab_size else "missing"
        if i < num_ids and ours != quoted(name):
            return f"id {i} is {ours}, and transformers' {quoted(name)}"
    return ""


class TransformersModel:
    """The model of a folder in float32.

    Raises:
      ValueError: if transformers cannot load the folder.
    """

    def __init__(self, folder: Path, hf_config: Mapping[str, Any], config: ModelConfig):
        """Load a folder.

        Args:
          folder: the folder.
          hf_config: the config.json that it should have.
          config: the model that it should contain.
        """
        from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]
        from transformers.utils import logging  # pyright: ignore[reportMissingImports]

        logging.disable_progress_bar()
        self.folder, self.hf_config, self.config = folder, hf_config, config
        is_file = folder.is_file()  # a GGUF file
        options = {"gguf_file": folder.name} if is_file else {"use_safetensors": True}
        try:
            self.model = AutoModelForCausalLM.from_pretrained(
                folder.parent if is_file else folder,
                dtype="float32",
                attn_implementation="eager",
                trust_remote_code=False,
                **options,
            ).eval()
        except Exception as error:  # the library raises many classes
            raise ValueError(
                f"transformers cannot load {folder} ({one_line(str(error), 200)})"
            ) from error
        self._rotary: Any = self.model.base_model.rotary_emb
        self._plain = self._rotary.forward

    def logits(self, tokens_T, positions_T, exact: bool = False) -> np.ndarray:
        """Return the logits `[T, V]` of one row, with transformers' angles or with exact ones."""
        import torch  # pyright: ignore[reportMissingImports]

        self._rotary.forward = self._exact if exact else self._plain
        ids, positions = (torch.from_numpy(np.asarray(x))[None] for x in (tokens_T, positions_T))
        # Without a mask, a gap in positions would begin another document.
        mask = torch.ones_like(ids)
        try:
            with torch.no_grad():
                out = self.model(
                    input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
                )
        except (RuntimeError, IndexError, TypeError) as error:
            raise ValueError(
                f"transformers cannot run {self.folder} ({one_line(str(error), 200)})"
            ) from error
        return out.logits[0].numpy()

    def _exact(self, x, position_ids, layer_type=None):
        """Return cosines and sines of float64 angles, if transformers' differ by drift only."""
        import torch  # pyright: ignore[reportMissingImports]

        config, length = self.config, int(position_ids.max()) + 1
        context = self.hf_config["max_position_embeddings"]
        head = HfHead(config.rope_head_dim, context, config.mla is not None)
        rope = read_rope(self.hf_config, layer_type)
        inv_freq, scales = compute_frequencies(rope, head, length)
        angles = position_ids[..., None].double() * torch.from_numpy(inv_freq)
        factor = math.sqrt(scales.rotated / scales.unrotated)
        theirs = self._plain(x, position_ids, *([layer_type] if layer_type else []))
        is_complex = isinstance(theirs, torch.Tensor)  # DeepSeek-V2: cos + i sin, once per pair
        if is_complex:
            theirs = theirs.real, theirs.imag
        else:
            angles = torch.cat([angles, angles], dim=-1)
        cos, sin = (part.double() for part in theirs)
        exact = factor * angles.cos(), factor * angles.sin()
        drift = factor * (1e-6 * float(angles.max()) + 1e-4)
        equal = cos.shape == exact[0].shape and (
            torch.allclose(cos, exact[0], atol=drift)
            and torch.allclose(sin, exact[1], atol=drift)
            # The magnitude has no drift, so it shows the temperature at any length.
            and torch.allclose(torch.hypot(cos, sin), torch.tensor(factor).double(), rtol=1e-5)
        )
        if not equal:
            raise ValueError(
                f"transformers computes other angles or another temperature than the run at "
                f"{length:,} tokens; nothing was written"
            )
        exact = tuple(part.to(theirs[0].dtype) for part in exact)
        return torch.complex(*exact) if is_complex else exact

    def check_windows(self) -> None:
        """Raise ValueError if the window of a layer is not the run's, even if off by one token.

        A query at index window + 1 attends to keys that are all 0, so the weights of visible keys
        are equal and those of the others exactly 0.
        """
        import torch  # pyright: ignore[reportMissingImports]
        from transformers import DynamicCache  # pyright: ignore[reportMissingImports]
        from transformers.cache_utils import DynamicLayer  # pyright: ignore[reportMissingImports]

        windows = windows_by_layer(self.config)
        if not any(windows):
            return
        length = max(filter(None, windows)) + 2
        zeros = torch.zeros(1, self.config.kv_heads, 1, self.config.head_dim)

        class Zeros(DynamicLayer):
            """A cache of zeros that takes no memory."""

            def __init__(self):
                super().__init__()
                self.is_initialized = True
                self.keys = self.values = zeros.expand(-1, -1, length - 1, -1)

            def update(self, key_states, value_states, *args, **kwargs):
                keys = zeros.expand(-1, -1, length, -1)
                return keys, keys

        cache = DynamicCache()
        cache.layers.extend(Zeros() for _ in windows)
        with torch.no_grad():
            out = self.model(
                input_ids=torch.zeros(1, 1, dtype=torch.long),
                position_ids=torch.tensor([[length - 1]]),
                past_key_values=cache,
                output_attentions=True,
            )
        for layer, (window, weights) in enumerate(zip(windows, out.attentions, strict=True)):
            visible = weights[0, 0, -1].numpy() > 0
            expected = np.arange(length) >= length - (window or length)
            if not np.array_equal(visible, expected):
                raise ValueError(
                    f"layer {layer}: in transformers a query attends to {visible.sum()} tokens, "
                    f"and the run's window is {window}; nothing was written"
                )
