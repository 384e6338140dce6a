"""Training step beside transformers' Llama with torch's AdamW.

Each library has its own process; blocks of steps are timed. On a CPU (float32, gradient clipping
and the same batch on both sides, all cores) the processes alternate, and one that waits is stopped:
torch's threads spin while they wait, which made our step of 30M parameters look a third slower than
it is alone. On a GPU they run one after the other, because each needs the memory.

On a GPU: parameters and moments in float32, products and the residual stream in bfloat16, as ours.
PyTorch gets the settings of a careful user: TF32 for the rest, autocast, flash attention, fused
AdamW, blocks compiled one by one (as in torchtitan), and a loss over parts of the logits (those of
125,696 words would not fit).
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import shapes
from benchmarks.program import TrainStep, random_batch
from benchmarks.protocol import Result, Setting, alternate, is_out_of_memory, start
from configs.changes import change
from experiment.config import ExperimentConfig
from model.config import ModelConfig

STEPS = 10  # of a block
LOSS_TOKENS = 4096  # tokens whose logits exist at once
# Rows of PyTorch's step on a GPU, and whether its backward pass recomputes the blocks.
TORCH_FITTINGS = {
    "base_125m": (32, "none"),
    "1B": (8, "full"),
    "paper_2b": (4, "full"),
    "paper_2b at 32k": (1, "full"),
}


def require_torch(benchmark: str) -> None:
    """Raise ValueError unless torch and transformers are installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"{benchmark} needs {error.name}: run `make test-hf` once, or "
            "pip install torch==2.13.0 transformers==5.23.0 (a CPU build of torch will do)"
        ) from None


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield our speed over torch's for every shape."""
    require_torch("peer")
    for name in shapes.train_shapes(setting.device, setting.dry):
        try:
            seconds = _time(name, setting)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            yield f"{name}: does not fit into memory"
            continue
        ours = seconds.pop("ours")
        for side, times in seconds.items():
            counts = {
                who: STEPS * shapes.tokens(_config(who, name, setting.device, setting.dry))
                for who in ("ours", side)
            }
            yield Result.from_seconds(
                name + side.removeprefix("torch"),
                "torch's time of a token over ours",
                {"torch's": times, "ours": ours},
                counts["ours"] / counts[side],
                measured={
                    "ms a step, torch's": 1e3 * min(times) / STEPS,
                    "ms a step, ours": 1e3 * min(ours) / STEPS,
                    "tokens/s, torch's": counts[side] / min(times),
                    "tokens/s, ours": counts["ours"] / min(ours),
                },
            )


def _time(name: str, setting: Setting) -> dict[str, list[float]]:
    """Return seconds of blocks of our steps and torch's.

    On a CPU with a C++ compiler, those of a model that torch compiles too.
    """
    sides = ["ours", "torch"]
    if setting.device == "cpu" and (shutil.which("g++") or shutil.which("clang++")):
        sides.append("torch, compiled")
    seconds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        functions = {}
        for side in sides:
            process = start("benchmarks.peer:make_block", side, name, setting.device, setting.dry)
            if setting.device == "cpu":
                functions[side] = stack.enter_context(process)
                continue
            with process as block:
                seconds |= alternate({side: block}, setting.rounds)
        return seconds or alternate(functions, setting.rounds)


def _config(side: str, name: str, device: str, dry: bool) -> ExperimentConfig:
    """Return the config of one library's step, without the options that Llama lacks."""
    plain = dict(shift_keys=False, align_query_key=False)
    config = change(shapes.train_shapes(device, dry)[name], model=plain)
    if side != "ours" and device == "gpu" and not dry:
        config = shapes.fitted(config, *TORCH_FITTINGS[name])
    return config


def make_block(side: str, name: str, device: str, dry: bool) -> Callable[[], list[float]]:
    """Return a function that makes a block of updates and returns their losses, which fall."""
    config = _config(side, name, device, dry)
    if side == "ours":
        update = TrainStep(config).make_update()
        step = lambda: update()["loss"]  # noqa: E731
    elif device == "gpu":
        step = _make_gpu_torch_step(config)
    else:
        step = _make_cpu_torch_step(config, compile_model=side.endswith("compiled"))
    losses = [float(step()) for _ in range(4)]
    if not losses[-1] < losses[0]:  # neither library skips its work
        raise ValueError(f"{side}: the loss does not fall: {losses}")

    def block() -> list[float]:
        return list(map(float, [step() for _ in range(STEPS)]))  # waits for the device at the end

    return block


def _make_cpu_torch_step(config: ExperimentConfig, *, compile_model: bool) -> Callable[[], Any]:
    import torch

    torch.manual_seed(0)
    llama = make_llama(config.model, config.data.context_length).train()
    forward = torch.compile(llama) if compile_model else llama
    tokens = torch.from_numpy(random_batch(config)["tokens"].astype(np.int64))
    return _make_torch_step(config, llama, lambda: forward(input_ids=tokens, labels=tokens).loss)


def _make_torch_step(config: ExperimentConfig, llama: Any, compute_loss: Callable) -> Callable:
    """Return a function that makes one update and returns the loss, without waiting for it."""
    import torch

    training = config.train
    optimizer = torch.optim.AdamW(
        llama.parameters(),
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        weight_decay=training.weight_decay,
        fused=True,
    )

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = compute_loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), training.clip_norm)
        optimizer.step()
        return loss.detach()

    return step


def make_llama(model: ModelConfig, context: int) -> Any:
    """Return the class of transformers for such a model (Llama for plain ones), in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from interop.architectures import choose_architecture, make_config

    settings = make_config(choose_architecture(model), model, context)
    config = AutoConfig.for_model(**settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def _make_gpu_torch_step(config: ExperimentConfig) -> Callable[[], Any]:
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    # A dry run on a CPU is eager: inductor would need a C++ compiler.
    device, backend = ("cuda", "inductor") if torch.cuda.is_available() else ("cpu", "eager")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    with torch.device(device):
        llama = make_llama(config.model, config.data.context_length).train()
    batch = random_batch(config)
    tokens, targets = (
        torch.from_numpy(batch[name]).long().to(device) for name in ("tokens", "targets")
    )
    for block in llama.model.layers:
        forward = torch.compile(block.forward, backend=backend)
        recomputed = functools.partial(checkpoint, forward, use_reentrant=False)
        block.forward = recomputed if config.model.remat == "full" else forward

    def sum_loss(hidden, targets):
        logits = functional.linear(hidden, llama.lm_head.weight)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")

    sum_loss = torch.compile(sum_loss, backend=backend)

    def compute_loss():
        with torch.autocast(device, torch.bfloat16):
            embedded = llama.model.embed_tokens(tokens).bfloat16()
            hidden = llama.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
            parts = zip(
                hidden.flatten(0, 1).split(LOSS_TOKENS),
                targets.flatten().split(LOSS_TOKENS),
                strict=True,
            )
            losses = [checkpoint(sum_loss, *part, use_reentrant=False) for part in parts]
            return torch.stack(losses).sum() / targets.numel()

    return _make_torch_step(config, llama, compute_loss)
