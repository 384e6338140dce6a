"""Greedy decoding beside transformers' `generate`, with the same weights in float32.

Each library has a process with one thread per core; the processes alternate. The time of n tokens
is that of a call for n + 1 new tokens minus that of a call for one.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ropewalk.evals.generation.engine import Engine, Prompts
from ropewalk.evals.generation.options import Options
from ropewalk.interop.choose import choose_architecture
from ropewalk.model import rotary, transformer
from ropewalk.model.config import ModelConfig
from ropewalk.model.transformer import Params
from ropewalk.tpu.benchmarks.peer import make_llama, require_torch
from ropewalk.tpu.benchmarks.protocol import Result, Setting, alternate, start

PROMPTS = (128, 512, 2048)
NEW_TOKENS = 64
SIDES = ("ours", "transformers")

Generate = Callable[[Sequence[int], int], list[int]]  # prompt, number of new tokens -> new tokens

# A model of the demo's size, and two whose weights are read from memory for every token.
SIZES: dict[str, dict[str, Any]] = {
    "small": dict(vocab_size=512, embed_dim=128, num_layers=2, num_heads=2, mlp_dim=256),
    "10M": dict(vocab_size=8192, embed_dim=320, num_layers=6, num_heads=5, mlp_dim=896),
    "90M, GQA": dict(
        vocab_size=16_384, embed_dim=768, num_layers=12, num_heads=12, num_kv_heads=4, mlp_dim=2048
    ),
}


def measure(setting: Setting) -> Iterator[Result]:
    """Yield ratios for a new token, and for reading the prompt with the first token."""
    require_torch("decode")
    for name, sizes in SIZES.items():
        for length in PROMPTS:
            seconds = _time(sizes, 16 if setting.dry else length, setting.rounds)
            for label, times in (
                ("a token", {side: _per_token(seconds, side) for side in SIDES}),
                ("reading the prompt", {side: seconds[f"{side}, first"] for side in SIDES}),
            ):
                yield Result.from_seconds(
                    f"{name}, {label}, {length} tokens",
                    "our time over that of transformers' generate",
                    times,
                )


def _per_token(seconds: dict[str, list[float]], side: str) -> list[float]:
    pairs = zip(seconds[side], seconds[f"{side}, first"], strict=True)
    return [(total - first) / NEW_TOKENS for total, first in pairs]


def _time(sizes: dict[str, Any], length: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds of NEW_TOKENS + 1 tokens after a prompt, and of the first token."""
    functions = {}
    with contextlib.ExitStack() as stack:
        for side in SIDES:
            generate = stack.enter_context(
                start("ropewalk.tpu.benchmarks.decode:make", side, sizes, length)
            )
            functions[f"{side}, first"] = functools.partial(generate, 1)
            functions[side] = functools.partial(generate, NEW_TOKENS + 1)
        return alternate(functions, rounds)


def make(side: str, sizes: dict[str, Any], length: int) -> Callable[[int], list[int]]:
    """Return a function that writes a number of tokens after a prompt with one library."""
    config = ModelConfig(**sizes, head_dim=64, rotary=rotary.parse("rope(base=1e4)"))
    params = jax.tree.map(np.asarray, transformer.init(config, 0))
    prompt = np.random.default_rng(0).integers(0, config.vocab_size, length).tolist()
    generate = (our_generate if side == "ours" else transformers_generate)(config, params)
    return functools.partial(generate, prompt)


def our_generate(config: ModelConfig, params: Params) -> Generate:
    """Return a function that decodes with our engine."""
    engine = Engine(config, max(PROMPTS), params)

    def generate(prompt: Sequence[int], count: int) -> list[int]:
        parts = engine.generate(Prompts([prompt], [0]), Options(max_new_tokens=count), -1)
        return np.concatenate(list(parts), axis=1)[0].tolist()

    return generate


def _load_transformers(config: ModelConfig, params: Params, context: int) -> Any:
    """Return the transformers model of an export of `params`."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    architecture = choose_architecture(config, context)
    model = make_llama(config, context).eval()
    tensors = {}
    for entry in architecture.entries(config):
        paths = [name.split(".") for name in entry.ours]
        leaves = [np.asarray(functools.reduce(operator.getitem, x, params)) for x in paths]
        layers = zip(*leaves, strict=True) if entry.is_stacked else [leaves]
        for name, arrays in zip(entry.names(config.num_layers), layers, strict=True):
            # A copy: torch needs writable memory.
            tensors[name] = torch.from_numpy(np.array(entry.to_hf(*arrays)))
    keys = model.load_state_dict(tensors, strict=False)
    if keys.unexpected_keys or {*keys.missing_keys} - {"lm_head.weight"}:
        raise ValueError(f"transformers' model has other tensors than the export: {keys}")
    model.tie_weights()
    return model


def transformers_generate(
    config: ModelConfig, params: Params, context: int = 2 * max(PROMPTS)
) -> Generate:
    """Return a function that decodes with the transformers class of an export of `params`."""
    import torch

    model = _load_transformers(config, params, context)

    def generate(prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.no_grad():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=count,
                min_new_tokens=count,
                eos_token_id=None,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()

    return generate
