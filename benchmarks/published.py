"""Logits and greedy text at the sizes of SmolLM2-135M, beside transformers.

Weights are random and the same for both, float32. Each library has a process with one thread per
core, and the processes alternate. On one core (`taskset -c 0`) CPU time is measured, which other
jobs change less.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks import processes
from benchmarks.decode import SIDES, load_transformers, our_generate, transformers_generate
from benchmarks.peer import require_torch
from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import alternate
from configs.changes import change
from configs.small import configs as small
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import rotary, transformer
from model.config import ModelConfig

SIZES: dict[str, Any] = dict(
    vocab_size=49_152, embed_dim=576, num_layers=30, num_heads=9, num_kv_heads=3, mlp_dim=1536
)
TOKENS, PROMPT, NEW_TOKENS = 2048, 256, 96
WORK = {
    "logits": f"logits of {TOKENS:,} tokens",
    "text": f"{NEW_TOKENS} greedy tokens after {PROMPT}",
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield our time over that of transformers, and its range over rounds."""
    require_torch("published")
    for work, name in WORK.items():
        with contextlib.ExitStack() as stack:
            functions = {
                side: stack.enter_context(
                    processes.start("benchmarks.published:make", side, work, setting.dry)
                )
                for side in SIDES
            }
            if len(os.sched_getaffinity(0)) > 1:
                seconds = alternate(functions, setting.rounds)
            else:
                rounds = [
                    {side: function() for side, function in functions.items()}
                    for _ in range(setting.rounds + 1)
                ]
                seconds = {side: [times[side] for times in rounds[1:]] for side in SIDES}
        yield Result.from_seconds(name, "our time over that of transformers", seconds, at_most=1.0)
        ratios = [ours / theirs for ours, theirs in zip(*seconds.values(), strict=True)]
        yield f"{name}: {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} rounds"


def make(side: str, work: str, dry: bool) -> Callable[[], Any]:
    """Return a function that computes logits or text with one library."""
    changes: dict[str, Any] = dict(num_layers=1, vocab_size=512) if dry else {}
    config = ModelConfig(**(SIZES | changes), head_dim=64, rotary=rotary.parse("rope(base=1e5)"))
    params = jax.tree.map(np.asarray, transformer.init(config, 0))
    random = np.random.default_rng(0)
    tokens_T = random.integers(0, config.vocab_size, TOKENS if work == "logits" else PROMPT)
    if work == "text":
        generate = (our_generate if side == "ours" else transformers_generate)(config, params)
        return lambda: generate(tokens_T.tolist(), NEW_TOKENS)
    if side == "ours":
        experiment = change(*small, model=config, data=dict(context_length=TOKENS))
        return functools.partial(
            LoadedRun(RunDirectory("none"), 0, experiment, params).logits, tokens_T[None]
        )
    import torch

    model = load_transformers(config, params, TOKENS)

    def compute_logits():
        with torch.no_grad():
            return model(torch.from_numpy(tokens_T[None])).logits.numpy()

    return compute_logits
