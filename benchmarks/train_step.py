"""A training step on a CPU beside transformers' LlamaForCausalLM and torch's AdamW.

Same sizes, float32, same batch, gradient clipping on both sides. Both libraries live in this
process and take turns; each may use all cores.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import dataclasses
import functools

import jax
import numpy as np

from benchmarks.timing import alternate, milliseconds, random_batch, ratio
from experiment.config import ExperimentConfig
from experiment.overrides import find_config
from model.config import ModelConfig
from model.positions import position_table
from model.rotary.rope import Rope
from model.transformer import count_params
from training.step import MemberArrays, init_state, train_step


def shapes() -> dict[str, ExperimentConfig]:
    """The demo's sizes without its options, which Llama lacks; and ten million parameters."""
    demo = find_config("demo")
    plain = dataclasses.replace(
        demo.model, rotary=Rope(base=10_000.0), shift_keys=False, align_query_key=False
    )
    larger = ModelConfig(
        vocab_size=8192,
        embed_dim=320,
        num_layers=6,
        num_heads=5,
        num_kv_heads=5,
        head_dim=64,
        mlp_dim=896,
        rotary=Rope(base=10_000.0),
    )
    larger_data = dataclasses.replace(demo.data, vocab_size=8192, context_length=512, batch_size=2)
    return {
        "demo": dataclasses.replace(demo, model=plain),
        "10M": dataclasses.replace(demo, model=larger, data=larger_data),
    }


def our_step(config: ExperimentConfig, batch: dict[str, np.ndarray]):
    """One update, state kept."""
    table = position_table(config.model, config.data.context_length)
    member = MemberArrays(table, np.float32(config.train.learning_rate))
    state = jax.jit(functools.partial(init_state, config))(np.uint32(0))
    step_fn = jax.jit(functools.partial(train_step, config), donate_argnums=0)
    losses = []

    def step() -> None:
        nonlocal state
        state, scalars = step_fn(state, member, batch, np.int32(100))
        losses.append(float(scalars["loss"]))

    return step, losses


def their_step(config: ExperimentConfig, batch: dict[str, np.ndarray]):
    """One update of the same network in transformers and torch."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model, training = config.model, config.train
    torch.manual_seed(0)
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.vocab_size,
            hidden_size=model.embed_dim,
            intermediate_size=model.mlp_dim,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            num_key_value_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            tie_word_embeddings=model.tie_embeddings,
            max_position_embeddings=config.data.context_length,
        )
    ).train()
    optimizer = torch.optim.AdamW(
        llama.parameters(),
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        weight_decay=training.weight_decay,
    )
    tokens = torch.from_numpy(batch["tokens"].astype(np.int64))
    losses = []

    def step() -> None:
        loss = llama(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), training.clip_norm)
        optimizer.step()
        losses.append(loss.item())

    return step, losses


def main(rounds: int) -> None:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ValueError(
            f"train-step needs {error.name}: run `make test-hf` once, or "
            "pip install torch==2.13.0 transformers==5.23.0 (a CPU build of torch will do)"
        ) from None
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, jax {jax.__version__}"
    )
    for name, config in shapes().items():
        batch = random_batch(config)
        (ours, our_losses), (theirs, their_losses) = (
            our_step(config, batch),
            their_step(config, batch),
        )
        seconds = alternate({"ours": ours, "theirs": theirs}, rounds)
        # Both learn the batch by heart: neither skips its work.
        assert our_losses[-1] < our_losses[0] and their_losses[-1] < their_losses[0]
        parameters = count_params(config.model)["total"] / 1e6
        tokens = config.data.batch_size * config.data.context_length
        print(
            f"{name:<5} {parameters:5.1f}M parameters, {tokens} tokens: "
            f"ours {milliseconds(seconds['ours'])}, theirs {milliseconds(seconds['theirs'])}, "
            f"ratio {ratio(seconds['ours'], seconds['theirs'])} (least / median)"
        )
