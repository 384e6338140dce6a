"""A training step on a CPU beside transformers' LlamaForCausalLM and torch's AdamW.

Same sizes, float32, same batch, gradient clipping on both sides. Each library has a process of its
own, with all cores, and they take turns: in one process the threads of one slow the other down.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import functools
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import torch_peer, turns
from benchmarks.shapes import on_cpu
from benchmarks.timing import alternate, compare, one_member, random_batch, updates
from configs.changes import change
from experiment.config import ExperimentConfig
from model.transformer import count_params
from training.step import train_step

LEARNED = 4  # updates on one batch, after which its loss has fallen


def shapes() -> dict[str, ExperimentConfig]:
    """What a CPU trains (`benchmarks.shapes`), without the options that Llama lacks."""
    plain = dict(shift_keys=False, align_query_key=False)
    return {name: change(config, model=plain) for name, config in on_cpu().items()}


def our_step(config: ExperimentConfig, batch: dict[str, np.ndarray]) -> Callable[[], float]:
    """One update, state kept; returns the loss."""
    step_fn = jax.jit(functools.partial(train_step, config), donate_argnums=0)
    update = updates(step_fn, *one_member(config), batch)
    return lambda: float(update()["loss"])


def their_step(
    config: ExperimentConfig, batch: dict[str, np.ndarray], *, compiled: bool = False
) -> Callable[[], float]:
    """One update of the same network in transformers and torch; returns the loss.

    Args:
      config: sizes and settings.
      batch: its tokens.
      compiled: by `torch.compile`, which needs a compiler of C++.
    """
    import torch

    training = config.train
    torch.manual_seed(0)
    llama = their_model(config)
    optimizer = torch.optim.AdamW(
        llama.parameters(),
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        weight_decay=training.weight_decay,
        fused=True,
    )
    forward = torch.compile(llama) if compiled else llama
    tokens = torch.from_numpy(batch["tokens"].astype(np.int64))

    def step() -> float:
        loss = forward(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), training.clip_norm)
        optimizer.step()
        return loss.item()

    return step


def their_model(config: ExperimentConfig) -> Any:
    """transformers' Llama of the same sizes, in float32, with torch's fused attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = config.model
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.vocab_size,
            hidden_size=model.embed_dim,
            intermediate_size=model.mlp_dim,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            num_key_value_heads=model.kv_heads,
            head_dim=model.head_dim,
            tie_word_embeddings=model.tie_embeddings,
            max_position_embeddings=config.data.context_length,
            attn_implementation="sdpa",  # pyright: ignore[reportCallIssue]
        )
    ).train()


def step_of(side: str, shape: str) -> Callable[[], float]:
    """A step that has been made some times, and learned: neither library skips its work.

    Args:
      side: "ours", "theirs" or "theirs, compiled".
      shape: of `shapes`.
    """
    config = shapes()[shape]
    batch = random_batch(config)
    compiled = side.endswith("compiled")
    step = (
        our_step(config, batch) if side == "ours" else their_step(config, batch, compiled=compiled)
    )
    losses = [step() for _ in range(LEARNED)]
    assert losses[-1] < losses[0], losses
    return step


def measure(shape: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of our steps and of theirs, on one batch; of theirs compiled where that runs."""
    sides = ["ours", "theirs"]
    if shutil.which("g++") or shutil.which("clang++"):
        sides.append("theirs, compiled")
    with contextlib.ExitStack() as stack:
        functions = {
            side: stack.enter_context(turns.process("benchmarks.train_step:step_of", side, shape))
            for side in sides
        }
        return alternate(functions, rounds)


def main(rounds: int) -> None:
    torch_peer.say_versions("train-step")
    for name, config in shapes().items():
        parameters = count_params(config.model)["total"] / 1e6
        tokens = config.data.batch_size * config.data.context_length
        print(f"{name}: {parameters:.1f}M parameters, {tokens} tokens")
        compare(measure(name, rounds))
