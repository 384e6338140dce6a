"""Seconds a token of greedy text beside transformers' `generate`, same weights, float32.

Both libraries live in this process and alternate, each with as many threads as there are cores;
on one core (`taskset -c 0`) CPU time is taken, which others on it do not change. What is timed is a
whole call, with n + 1 new tokens and with one; the difference is of n tokens. What compiles has
been called before. Both must write the same.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import torch_peer
from benchmarks.timing import alternate
from inference.engine import Engine, Prompts
from inference.options import Options
from interop.architectures import Facts, choose, config_json
from model import rotary, transformer
from model.config import ModelConfig
from model.transformer import Params, count_params

PROMPTS = (128, 512, 2048)
NEW = 64

Writer = Callable[[Sequence[int], int], list[int]]  # prompt, number of new tokens -> new tokens


def shapes() -> dict[str, ModelConfig]:
    """A model as of the demo, and two that are read from memory for every token."""
    rope = rotary.parse("rope(base=1e4)")
    small = ModelConfig(
        vocab_size=512,
        embed_dim=128,
        num_layers=2,
        num_heads=2,
        head_dim=64,
        mlp_dim=256,
        rotary=rope,
    )
    sizes: dict[str, Any] = dict(head_dim=64, rotary=rope)
    return {
        "small": small,
        "10M": ModelConfig(
            vocab_size=8192, embed_dim=320, num_layers=6, num_heads=5, mlp_dim=896, **sizes
        ),
        "90M, GQA": ModelConfig(
            vocab_size=16_384,
            embed_dim=768,
            num_layers=12,
            num_heads=12,
            num_kv_heads=4,
            mlp_dim=2048,
            **sizes,
        ),
    }


def ours(config: ModelConfig, params: Params) -> Writer:
    engine = Engine(config, max(PROMPTS), params)

    def write(prompt: Sequence[int], count: int) -> list[int]:
        parts = engine.generate(Prompts([prompt], [0]), Options(max_new_tokens=count), -1)
        return np.concatenate(list(parts), axis=1)[0].tolist()

    return write


def theirs(config: ModelConfig, params: Params, context: int = 2 * max(PROMPTS)) -> Writer:
    """The class of transformers that an export of these weights would be."""
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    architecture = choose(config)
    facts = Facts(context=context, bos_id=None, eos_id=None)
    described = config_json(architecture, config, facts)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**described), dtype=torch.float32
    ).eval()
    tensors = {}
    for entry in architecture.entries(config):
        leaves = [_leaf(params, name) for name in entry.ours]
        for layer in range(config.num_layers if entry.is_stacked else 1):
            own = [x[layer] for x in leaves] if entry.is_stacked else leaves
            tensor = np.array(entry.to_hf(*own))  # torch wants to be able to write
            tensors[entry.theirs.format(layer=layer)] = torch.from_numpy(tensor)
    lacking = model.load_state_dict(tensors, strict=False)
    assert not lacking.unexpected_keys and set(lacking.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()

    def write(prompt: Sequence[int], count: int) -> list[int]:
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

    return write


def _leaf(params: Params, name: str) -> np.ndarray:
    for part in name.split("."):
        params = params[part]
    return np.asarray(params)


def measure(config: ModelConfig, length: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of `NEW` tokens after a prompt, and of the prompt with the first token."""
    params = jax.tree.map(np.asarray, transformer.init(config, 0))
    prompt = np.random.default_rng(0).integers(0, config.vocab_size, length).tolist()
    functions = {}
    written = {}
    for name, writer in (("ours", ours(config, params)), ("theirs", theirs(config, params))):
        written[name] = writer(prompt, NEW + 1)
        functions[f"{name}, first"] = lambda writer=writer: writer(prompt, 1)
        functions[name] = lambda writer=writer: writer(prompt, NEW + 1)
    assert written["ours"] == written["theirs"]
    is_shared = len(os.sched_getaffinity(0)) > 1
    return alternate(functions, rounds, time.perf_counter if is_shared else time.process_time)


def main(rounds: int) -> None:
    torch_peer.say_versions("decode")
    for name, config in shapes().items():
        print(f"{name}: {count_params(config)['total'] / 1e6:.1f}M parameters")
        for length in PROMPTS:
            seconds = measure(config, length, rounds)
            tokens = {side: _of_tokens(seconds, side) for side in ("ours", "theirs")}
            prompt = {side: seconds[f"{side}, first"] for side in tokens}
            print(
                f"  after {length:>4} tokens: {_ms(tokens['ours'])} a token, transformers "
                f"{_ms(tokens['theirs'])}, ratio {_ratio(tokens)}; "
                f"reading them: {_ms(prompt['ours'])}, ratio {_ratio(prompt)}",
                flush=True,
            )


def _of_tokens(seconds: dict[str, list[float]], side: str) -> list[float]:
    return [
        (whole - first) / NEW
        for whole, first in zip(seconds[side], seconds[f"{side}, first"], strict=True)
    ]


def _ms(seconds: list[float]) -> str:
    return f"{min(seconds) * 1e3:.3f} / {statistics.median(seconds) * 1e3:.3f} ms"


def _ratio(seconds: dict[str, list[float]]) -> str:
    ratios = [our / their for our, their in zip(seconds["ours"], seconds["theirs"], strict=True)]
    least = min(seconds["ours"]) / min(seconds["theirs"])
    return f"{least:.2f} / {statistics.median(ratios):.2f}"
