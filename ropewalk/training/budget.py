"""Estimates of `--check`: memory, passes over the text, time and disk that a command takes.

Nothing is compiled, and no text is read: the number of tokens follows from the bytes of the files,
memory from the shapes of a traced step, and time from rates that were measured on other models
(`experiment.cost`), on CPUs relative to the rate of a matrix product.
"""

import collections
import dataclasses
import functools
import math
import shutil
import timeit
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

from ropewalk.data.config import DataConfig
from ropewalk.data.mixture import describe_epochs
from ropewalk.data.source import Source
from ropewalk.data.store import store_dtype
from ropewalk.data.tokenizing import names_held_out
from ropewalk.experiment import dotted
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.cost import (
    count_flops,
    describe_shares,
    nearest_rate,
    peak_flops,
    peak_of,
    seconds_on,
)
from ropewalk.experiment.devices import device_memory
from ropewalk.experiment.stages import Stage
from ropewalk.model.axes import products_dtype
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.loss import tokens_at_once
from ropewalk.model.transformer import abstract_params
from ropewalk.training.members import abstract_state, state_bytes
from ropewalk.training.plan import Checked
from ropewalk.training.programs import member_arrays
from ropewalk.training.step import loss_fn
from ropewalk.utils.messages import counted, duration, size
from ropewalk.utils.paths import in_bucket

_COMPRESSED, _RATIO = (".gz", ".zst", ".parquet"), 3
_BYTES_PER_BIT = 0.27  # of text, per bit of the vocabulary: 3.2 bytes per token of 4096
_SIDE, _REPEATS = 1024, 4  # of the matrix product
_CHIP = "H100"  # where other devices than those of this process will train


def describe_estimates(checks: Sequence[Checked], *, is_elsewhere: bool) -> list[str]:
    """Return lines about the rows, passes over the text, memory, time and disk.

    Args:
      checks: groups of members, which train one after another.
      is_elsewhere: whether other devices than those of this process will train.
    """
    lines: dict[str, None] = {}
    num_bytes = 0.0
    texts: dict[DataConfig, float] = {}
    for checked in checks:
        num_bytes += len(checked.runs) * checkpoint_bytes([stage for stage, *_ in checked.stages])
        for (stage, *_), data in zip(checked.stages, checked.sources, strict=True):
            lines[_rows(data)] = None
            if data.has_text and data in checked.texts:
                vocab_size = stage.config.model.vocab_size
                source = checked.texts[data].source
                tokens, held_out = (_tokens(source, vocab_size, split) for split in (False, True))
                texts[data] = tokens * store_dtype(vocab_size).itemsize
                share = 1 - data.retrieval_fraction
                read = (stage.end - stage.rows_from) * stage.tokens_per_step  # of the same stream
                epochs = share * read / tokens
                join = " before data.subset_shares; at least" if data.subset_shares else ";"
                lines[f"text: about {tokens:,.0f} tokens{join} {describe_epochs(epochs)}"] = None
                # More documents are held out if a row lacks text, unless names hold out.
                is_named, rows = names_held_out(source), data.context_length
                if (min(tokens, held_out) if is_named else tokens + held_out) < 3 * rows:
                    what = f"about {tokens + held_out:,.0f} tokens may be too few: training and"
                    fix = "use more text, or a lower data.context_length"
                    lines[f"warning: {what} held-out text need {rows:,} each; {fix}"] = None
    num_bytes += sum(texts.values())
    return [
        *lines,
        _memory(checks, is_elsewhere),
        _time(checks, is_elsewhere),
        _disk(num_bytes, checks[0].runs[0].path),
        "not checked: documents",
    ]


def _rows(data: DataConfig) -> str:
    share = data.retrieval_fraction if data.has_text else 1.0
    tasks = ", ".join(data.retrieval_tasks)
    retrieval = f"{100 * share:.4g}% retrieval documents ({tasks}), whose loss counts only answers"
    parts = [f"{100 - 100 * share:.4g}% text"] * (share < 1) + [retrieval] * (share > 0)
    return f"rows: {', '.join(parts)} (data.retrieval_fraction={share:g})"


def _tokens(source: Source, vocab_size: int, validation: bool) -> float:
    """Estimate the tokens of the files of a split."""
    num_bytes = sum(
        file.size * (_RATIO if file.name.lower().endswith(_COMPRESSED) else 1)
        for file in source.inputs
        if file.validation == validation
    )
    return max(1, num_bytes / (_BYTES_PER_BIT * math.log2(vocab_size)))


class Memory(NamedTuple):
    """Bytes of a device that a step of all its members uses at once."""

    state: float
    gradients: float
    activations: float


def step_memory(
    config: ExperimentConfig, axes: dict[str, int], num_members: int, *, in_turn: bool
) -> Memory:
    """Estimate the memory of a step.

    Args:
      config: of a stage.
      axes: number of devices along each axis of the mesh.
      num_members: of the sweep.
      in_turn: whether the members of a device compute one after another, as on an unsplit CPU.
    """
    mesh: Any = AbstractMesh(tuple(axes.values()), tuple(axes))
    state = abstract_state(config, num_members, mesh)

    dtype = products_dtype(config.model.compute_dtype)
    model = dataclasses.replace(config.model, compute_dtype=dtype)

    def bytes_on_device(tree: Any) -> int:
        return sum(
            math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
            for x in jax.tree.leaves(tree)
        )

    num_local = num_members // axes["sweep"]
    at_once = 1 if in_turn else num_local
    # In turn, the new states do not take the place of the old ones.
    num_states = 2 if in_turn and num_local > 1 else 1
    num_copies = 1 + (config.train.accumulate > 1)  # the sum, and those of a microbatch
    gradients = bytes_on_device(state.params) * axes["sweep"] / num_members
    rows = config.data.batch_size // config.train.accumulate // (axes["data"] * axes["fsdp"])
    activations = _activations(
        model.architecture,
        member_arrays([Stage(0, 0, 0, 0, 0, config)]).table,
        max(1, rows),
        config.data.context_length // axes["sequence"],
    )
    if axes["fsdp"] > 1:  # a layer and the output matrix of all devices, and their gradients
        blocks = jax.tree.leaves(abstract_params(model)["blocks"])
        layer = sum(x.size for x in blocks) / model.num_layers
        gathered = layer + model.vocab_size * model.embed_dim
        activations += gathered * (jnp.dtype(model.compute_dtype).itemsize + 4)
        activations += 4 * model.vocab_size * model.embed_dim  # gradient of the embedding
    return Memory(
        num_states * bytes_on_device(state),
        at_once * num_copies * gradients,
        at_once * activations / axes["tensor"],
    )


def _activations(model: Architecture, table: PositionTable, B: int, T: int) -> float:
    """Estimate the bytes of activations, logits included, at the peak of a microbatch."""

    def saved(**changes: Any) -> int:
        changed = dataclasses.replace(model, **changes)
        return _saved_bytes(changed, jax.tree.map(lambda x: x[: changed.num_layers], table), B, T)

    num_tokens = tokens_at_once(model.vocab_size, "")
    chunk = min(B * T, model.loss_chunk * B if model.loss_chunk else num_tokens)
    # With their gradient; if they are made at once, the forward pass has saved them.
    logits = 4 * model.vocab_size * chunk * (1 if chunk == B * T else 2)
    # When the logits are gone: gradients of a layer's MLP, and a layer that is computed again.
    layer = 3 * B * T * model.mlp_dim * jnp.dtype(model.compute_dtype).itemsize
    if model.remat == "none":
        return saved() + max(logits, layer)
    once = saved(num_layers=1, remat="none")
    if model.remat.startswith("offload"):
        return once + max(logits, layer)
    return saved() + max(logits, layer + once - saved(num_layers=1))


def _saved_bytes(model: Architecture, table: PositionTable, B: int, T: int) -> int:
    """Return the bytes that the forward pass saves for the backward pass, without parameters."""
    params = abstract_params(model)
    names = ("tokens", "targets", "positions", "segment_ids")
    batch: dict[str, Any] = {name: jax.ShapeDtypeStruct((B, T), np.int32) for name in names}
    batch["loss_mask"] = jax.ShapeDtypeStruct((B, T), np.float32)

    def pullback(params, batch):
        return jax.vjp(lambda params: loss_fn(params, model, table, batch, jnp.ones(())), params)[1]

    saved = jax.tree.leaves(jax.eval_shape(pullback, params, batch))
    shapes = collections.Counter((x.shape, x.dtype) for x in saved)
    shapes.subtract((x.shape, x.dtype) for x in jax.tree.leaves((params, batch)))
    return sum(
        count * math.prod(shape) * dtype.itemsize for (shape, dtype), count in (+shapes).items()
    )


def _memory(checks: Sequence[Checked], is_elsewhere: bool) -> str:
    """Return the line about the memory of the stage with the most activations."""

    def activations(pair: tuple[Checked, Stage]) -> float:
        (checked, stage), train = pair, pair[1].config.train
        width = stage.config.model.num_layers * stage.config.model.embed_dim
        members = len(checked.runs) / math.prod(checked.axes.values())
        return members * stage.tokens_per_step / train.accumulate * width

    pairs = [(checked, stage) for checked in checks for stage, *_ in checked.stages]
    checked, stage = max(pairs, key=activations)
    num_devices = math.prod(checked.axes.values())
    is_unsplit = num_devices == checked.axes["sweep"]
    in_turn = is_unsplit and not is_elsewhere and jax.default_backend() == "cpu"
    config = stage.config
    if is_elsewhere and config.model.compute_dtype == "auto":
        config = dotted.apply(config, ["model.compute_dtype=bfloat16"])
    memory = step_memory(config, checked.axes, len(checked.runs), in_turn=in_turn)
    line = (
        f"memory: about {size(sum(memory))} on each of {counted(num_devices, 'devices')}: "
        f"{size(memory.state)} of parameters and optimizer state, {size(memory.gradients)} of "
        f"gradients, {size(memory.activations)} of activations"
    )
    available = None if is_elsewhere else device_memory()
    if available is None:
        return f"{line}; `ropewalk aot` compiles the step for a chip"
    is_too_much = sum(memory) * num_devices > available
    return f"{'warning: ' * is_too_much}{line}; all devices have {size(available)}"


def _time(checks: Sequence[Checked], is_elsewhere: bool) -> str:
    """Return the line about the time, on this process's devices or on as many H100."""
    left = [
        stage._replace(start=min(max(stage.start, checked.start_step), stage.end))
        for checked in checks
        for stages in checked.stages
        for stage in stages
    ]
    if not (flops := count_flops(left)):
        return "time: none, all steps are there"
    if is_elsewhere:
        num_devices = math.prod(checks[0].axes.values())
        kind, peak, scale = _CHIP, peak_of(_CHIP), f"the peak of {num_devices} {_CHIP}"
        peak = (peak or 0) * num_devices
    else:
        kind, peak = jax.devices()[0].device_kind, peak_flops()
        scale = f"the peak of {counted(jax.device_count(), 'devices')} of this machine"
        if peak is None:
            kind, peak, scale = "cpu", _matmul_rate(), "this machine's rate of matrix products"
    chips = sorted({nearest_rate(kind, stage.config).chip for stage in left})
    return (
        f"time: {flops:.2g} FLOPs, about {duration(seconds_on(kind, peak, left))} at "
        f"{describe_shares(kind, left)} of {scale}, as measured on one {' and '.join(chips)}; "
        "compilation and evaluation come on top"
    )


def _matmul_rate() -> float:
    """Return the FLOP/s of a float32 matrix product, the best of a few."""
    x = jnp.ones((_SIDE, _SIDE))
    product = jax.jit(lambda x: x @ x).lower(x).compile()
    seconds = timeit.repeat(lambda: product(x).block_until_ready(), number=1, repeat=_REPEATS)
    return 2 * _SIDE**3 / min(seconds)


def checkpoint_bytes(stages: Sequence[Stage]) -> int:
    """Return the bytes of the checkpoints that a run has while it writes the last one."""
    saves = {stage.end for stage in stages}
    ends = set(saves)
    for stage in stages:
        every = stage.config.train.save_every
        saves |= set(range(stage.start - stage.start % every + every, stage.end, every))
    train = stages[0].config.train
    steps = {*sorted(saves)[-train.keep - train.keep_best - 1 :], *ends}
    sizes = functools.cache(state_bytes)
    return sum(sizes(next(x.config for x in stages if step <= x.end)) for step in steps)


def _disk(num_bytes: float, path: Path) -> str:
    line = f"disk: about {_in_gb(num_bytes)} of checkpoints and tokens"
    if in_bucket(path):
        return line
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    return f"{'warning: ' * (free < num_bytes)}{line}; {_in_gb(free)} are free"


def _in_gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
