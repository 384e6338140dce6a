"""The same steps in PyTorch: transformers' Llama, torch.compile, fused attention and AdamW.

As ours: parameters and moments in float32, products and the residual stream in bfloat16, gradients
clipped. What a careful user of it would set is set: TF32 for what stays float32, autocast, flash
attention, the fused AdamW, blocks compiled one by one (as torchtitan has it: one compilation serves
all), and a loss whose logits exist a part at a time (those of 125,696 words would not fit).
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import functools
import gc
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import record, shapes
from benchmarks.gpu.fitting import fitted
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.shapes import Fitting
from benchmarks.timing import random_batch
from benchmarks.train_step import their_model
from experiment.config import ExperimentConfig

STEPS, WARM = 3, 2
ENOUGH = 60
LOSS_ROWS = 4096  # tokens whose logits exist at once
GOAL = 1.15  # our tokens/s over theirs


class Way(NamedTuple):
    """How a step is made to fit: rows, and whether blocks are computed again going backwards."""

    rows: int
    recompute: bool


TRIED = {
    "base_125m": (Way(16, False), Way(32, False), Way(64, True)),
    "1B": (Way(4, False), Way(8, True)),
    "paper_2b": (Way(2, False), Way(4, True), Way(8, True)),
    "paper_2b at 32k": (Way(1, True),),
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Of each shape the fastest way, beside what `step` measured on this machine."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            yield f"{name} is not installed: no comparison with it"
            return
    path = setting.folder / "gpu-step.json"
    if not path.exists():
        yield "our own steps were not measured here: python -m benchmarks gpu --only step"
    ours = rates(record.Taken.read(path)) if path.exists() else {}
    for name, shape in shapes.on_gpu(setting.scale).items():
        best: tuple[list[float], Way] | None = None
        for way in TRIED[name]:
            if best and not setting.has(ENOUGH):
                yield f"{name}: no time was left for {way}"
                continue
            config = fitted(shape.config, Fitting(way.rows, "none"))
            label = f"{name}: {way.rows} rows" + ", blocks recomputed" * way.recompute
            try:
                found = _rates(config, way, setting)
            except Exception as error:  # of memory or a compiler: other ways are still tried
                said = (str(error).splitlines() or [""])[0][:150]
                yield f"{label}: {type(error).__name__}: {said}"
                continue
            yield f"{label}: {max(found):,.0f} tokens/s"
            if best is None or max(found) > max(best[0]):
                best = found, way
        if best and name in ours:
            yield _result(name, ours[name], *best)


def rates(taken: record.Taken) -> dict[str, float]:
    """Our tokens/s, by shape."""
    found = [(one.name, one.measured.get("tokens/s")) for one in taken.results]
    return {name: rate for name, rate in found if rate is not None}


def _result(name: str, ours: float, theirs: list[float], way: Way) -> Result:
    return Result(
        name=name,
        ratio="our tokens/s over PyTorch's",
        least=ours / max(theirs),
        median=ours / statistics.median(theirs),
        at_least=GOAL,
        measured={"tokens/s": ours, "PyTorch's": max(theirs), "rows": way.rows},
    )


def _rates(config: ExperimentConfig, way: Way, setting: Setting) -> list[float]:
    """Tokens/s of every round; what it held is given back."""
    import torch

    _give_back()  # what an error before held on to
    step = their_step(config, way)
    taken = []
    try:
        for number in range(setting.rounds + 1):
            start = time.perf_counter()
            for _ in range(STEPS if number else WARM):
                loss = step()
            # Waits for the device, and shows that it learned.
            assert loss.item() == loss.item(), "the loss is not a number"
            taken.append(time.perf_counter() - start)
    finally:
        del step
        torch._dynamo.reset()
        _give_back()
    return [STEPS * shapes.tokens(config) / seconds for seconds in taken[1:]]


def _give_back() -> None:
    import torch

    gc.collect()  # blocks and their compiled selves hold one another
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def their_step(config: ExperimentConfig, way: Way) -> Callable[[], Any]:
    """One update, which returns the loss without waiting for it."""
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    with torch.device(device):
        llama = their_model(config)
    training = config.train
    optimizer = torch.optim.AdamW(
        llama.parameters(),
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        weight_decay=training.weight_decay,
        fused=True,
    )
    batch = random_batch(config)
    tokens, targets = (
        torch.from_numpy(batch[name]).long().to(device) for name in ("tokens", "targets")
    )

    def part(hidden, targets):
        logits = functional.linear(hidden, llama.lm_head.weight)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")

    # On a CPU only to see that it works: inductor needs a compiler of C++ there.
    backend = "inductor" if device == "cuda" else "eager"
    for block in llama.model.layers:
        forward = torch.compile(block.forward, backend=backend)
        recomputed = functools.partial(checkpoint, forward, use_reentrant=False)
        block.forward = recomputed if way.recompute else forward
    part = torch.compile(part, backend=backend)

    def loss_of(tokens, targets):
        with torch.autocast(device, torch.bfloat16):
            embedded = llama.model.embed_tokens(tokens).bfloat16()
            hidden = llama.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
            rows = hidden.flatten(0, 1).split(LOSS_ROWS), targets.flatten().split(LOSS_ROWS)
            parts = [checkpoint(part, *row, use_reentrant=False) for row in zip(*rows, strict=True)]
            return torch.stack(parts).sum() / targets.numel()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), training.clip_norm)
        optimizer.step()
        return loss.detach()

    return step
