"""Training step beside transformers' Llama with torch's AdamW.

On a CPU: float32 and gradient clipping on both sides, the same batch. Each library has its own
process with all cores. The processes alternate in blocks of ten steps, and one that waits is
stopped: torch's threads spin while they wait, which made our step of 30M parameters look a third
slower than it is alone.

On a GPU: parameters and moments in float32, products and the residual stream in bfloat16, as ours.
PyTorch gets the settings of a careful user: TF32 for the rest, autocast, flash attention, fused
AdamW, blocks compiled one by one (as in torchtitan), and a loss over parts of the logits (those of
125,696 words would not fit).
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import functools
import gc
import json
import shutil
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import shapes
from benchmarks.program import Attempt, TrainStep, fastest, random_batch
from benchmarks.protocol import Result, Setting, alternate, start, timed
from benchmarks.shapes import Fitting, Shape
from configs.changes import change
from experiment.config import ExperimentConfig
from model.config import ModelConfig

GOALS = {"cpu": 1.2, "gpu": 1.15}  # our speed over torch's
STEPS = {"cpu": 10, "gpu": 3}  # of a block
LOSS_TOKENS = 4096  # tokens whose logits exist at once


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
    all_shapes = shapes.train_shapes(setting.device, setting.dry)
    if setting.device == "gpu":
        yield from _measure_gpu(setting, all_shapes)
        return
    for name in all_shapes:
        seconds = _time_on_cpu(name, setting)
        ours = seconds.pop("ours")
        for side, times in seconds.items():
            yield Result.from_seconds(
                name + side.removeprefix("torch"),
                "torch's time of a step over ours",
                {"torch's": times, "ours": ours},
                at_least=GOALS["cpu"],
                measured={
                    f"ms a step, {who}": 1e3 * min(block) / STEPS["cpu"]
                    for who, block in (("torch's", times), ("ours", ours))
                },
            )


def _time_on_cpu(name: str, setting: Setting) -> dict[str, list[float]]:
    """Return seconds of our steps and torch's; compiled by torch too if there is a compiler."""
    sides = ["ours", "torch"]
    if shutil.which("g++") or shutil.which("clang++"):
        sides.append("torch, compiled")
    with contextlib.ExitStack() as stack:
        functions = {
            side: stack.enter_context(
                start("benchmarks.peer:make_cpu_block", side, name, setting.dry)
            )
            for side in sides
        }
        return alternate(functions, setting.rounds)


def make_cpu_block(side: str, name: str, dry: bool) -> Callable[[], list[float]]:
    """Return a function that makes a block of updates and returns their losses, which fall."""
    # Without the options that Llama lacks.
    plain = dict(shift_keys=False, align_query_key=False)
    config = change(shapes.train_shapes("cpu", dry)[name].config, model=plain)
    if side == "ours":
        update = TrainStep(config).make_update()
        call = lambda: float(update()["loss"])  # noqa: E731
    else:
        torch_step = _make_cpu_torch_step(config, compile_model=side.endswith("compiled"))
        call = lambda: torch_step().item()  # noqa: E731
    losses = [call() for _ in range(4)]
    if not losses[-1] < losses[0]:  # neither library skips its work
        raise ValueError(f"{side}: the loss does not fall: {losses}")
    return lambda: [call() for _ in range(STEPS["cpu"])]


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


# Ways to fit PyTorch's step into memory: "full" recomputes blocks in the backward pass.
FITTINGS = {
    "base_125m": (Fitting(16, "none"), Fitting(32, "none"), Fitting(64, "full")),
    "1B": (Fitting(4, "none"), Fitting(8, "full")),
    "paper_2b": (Fitting(2, "none"), Fitting(4, "full"), Fitting(8, "full")),
    "paper_2b at 32k": (Fitting(1, "full"),),
}


def _measure_gpu(setting: Setting, all_shapes: dict[str, Shape]) -> Iterator[Result | str]:
    """Yield PyTorch's fastest step of each shape beside the rate that `step` recorded here."""
    ours = _our_rates(setting)
    if not ours:
        yield "no results of our own steps on this machine: run benchmarks gpu --only step"
    for name, shape in all_shapes.items():
        attempts = {
            f"{name}: {fitting.rows} rows, remat={fitting.remat}": functools.partial(
                _attempt_on_gpu, shape.fitted(fitting), setting.rounds
            )
            for fitting in FITTINGS[name]
        }
        # After an error of memory or of a compiler the other ways are still tried.
        best = yield from fastest(attempts, Exception)
        if best and name in ours:
            yield Result(
                name=name,
                ratio="our tokens/s over PyTorch's",
                least=ours[name] / max(best.rates),
                median=ours[name] / statistics.median(best.rates),
                at_least=GOALS["gpu"],
                measured={
                    "tokens/s": ours[name],
                    "PyTorch's": max(best.rates),
                    "rows": best.config.data.batch_size,
                },
            )


def _our_rates(setting: Setting) -> dict[str, float]:
    """Return our tokens/s by shape, as `step` wrote them."""
    path = setting.path("step")
    rows = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []
    pairs = ((row["name"], row["measured"].get("tokens/s")) for row in rows)
    return {name: rate for name, rate in pairs if rate is not None}


def _attempt_on_gpu(config: ExperimentConfig, rounds: int) -> Attempt:
    """Time PyTorch's steps, in memory that earlier attempts have freed."""
    import torch

    gc.collect()  # blocks and their compiled forms refer to each other
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    step = _make_gpu_torch_step(config)

    def make_steps() -> None:
        loss = [step() for _ in range(STEPS["gpu"])][-1]
        if not np.isfinite(loss.item()):  # waits for the device
            raise ValueError("torch: the loss is not finite")

    seconds = alternate({"torch": timed(make_steps)}, rounds)
    return Attempt(seconds, STEPS["gpu"] * shapes.tokens(config), config)


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
