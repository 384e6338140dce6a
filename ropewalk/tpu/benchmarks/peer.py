"""Training step on a CPU beside transformers' Llama with torch's AdamW.

Each library has its own process (float32, gradient clipping and the same batch on both sides, all
cores). Blocks of steps alternate, and a process that waits is stopped: torch's threads spin while
they wait, which made our step of 30M parameters look a third slower than it is alone.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ropewalk.configs.changes import change
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.model.config import ModelConfig
from ropewalk.tpu.benchmarks import shapes
from ropewalk.tpu.benchmarks.program import TrainStep, random_batch
from ropewalk.tpu.benchmarks.protocol import Result, Setting, alternate, start

STEPS = 10  # of a block


def _require_torch() -> None:
    """Raise ValueError unless torch and transformers are installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"peer needs {error.name}: run `make test-hf` once, or "
            "pip install torch==2.13.0 transformers==5.23.0 (a CPU build of torch will do)"
        ) from None


def measure(setting: Setting) -> Iterator[Result]:
    """Yield our speed over torch's for every shape."""
    _require_torch()
    for name in shapes.train_shapes("cpu", setting.dry):
        seconds = _time(name, setting)
        ours = seconds.pop("ours")
        tokens = STEPS * shapes.tokens(_config(name, setting.dry))
        for side, times in seconds.items():
            yield Result.from_seconds(
                name + side.removeprefix("torch"),
                "torch's time of a token over ours",
                {"torch's": times, "ours": ours},
                measured={
                    "ms a step, torch's": 1e3 * min(times) / STEPS,
                    "ms a step, ours": 1e3 * min(ours) / STEPS,
                    "tokens/s, torch's": tokens / min(times),
                    "tokens/s, ours": tokens / min(ours),
                },
            )


def _time(name: str, setting: Setting) -> dict[str, list[float]]:
    """Return seconds of blocks of our steps and torch's; with a C++ compiler, compiled ones too."""
    sides = ["ours", "torch"]
    if shutil.which("g++") or shutil.which("clang++"):
        sides.append("torch, compiled")
    with contextlib.ExitStack() as stack:
        functions = {
            side: stack.enter_context(
                start("ropewalk.tpu.benchmarks.peer:make_block", side, name, setting.dry)
            )
            for side in sides
        }
        return alternate(functions, setting.rounds)


def _config(name: str, dry: bool) -> ExperimentConfig:
    """Return the config of a step, without the options that Llama lacks."""
    plain = dict(shift_keys=False, align_query_key=False)
    return change(shapes.train_shapes("cpu", dry)[name], model=plain)


def make_block(side: str, name: str, dry: bool) -> Callable[[], list[float]]:
    """Return a function that makes a block of updates and returns their losses, which fall."""
    config = _config(name, dry)
    if side == "ours":
        update = TrainStep(config).make_update()
        step = lambda: update()["loss"]  # noqa: E731
    else:
        step = _make_torch_step(config, compile_model=side.endswith("compiled"))
    losses = [float(step()) for _ in range(4)]
    if not losses[-1] < losses[0]:  # neither library skips its work
        raise ValueError(f"{side}: the loss does not fall: {losses}")

    def block() -> list[float]:
        return list(map(float, [step() for _ in range(STEPS)]))  # waits for the device at the end

    return block


def _make_torch_step(config: ExperimentConfig, *, compile_model: bool) -> Callable[[], Any]:
    """Return a function that makes one update and returns the loss."""
    import torch

    torch.manual_seed(0)
    llama = _make_llama(config.model, config.data.context_length).train()
    forward = torch.compile(llama) if compile_model else llama
    tokens = torch.from_numpy(random_batch(config)["tokens"].astype(np.int64))
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
        loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), training.clip_norm)
        optimizer.step()
        return loss.detach()

    return step


def _make_llama(model: ModelConfig, context: int) -> Any:
    """Return the class of transformers for such a model (Llama for plain ones), in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from ropewalk.interop.architectures import make_config
    from ropewalk.interop.choose import choose_architecture

    settings = make_config(choose_architecture(model, context), model, context)
    config = AutoConfig.for_model(**settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
