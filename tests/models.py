"""Small models, and plans of their training, that tests share."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ropewalk.configs import find_config
from ropewalk.experiment import overrides as overrides_lib
from ropewalk.experiment.checkpoint import Checkpoints, DataState
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import loss, transformer, vocabulary
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary import parse_pattern
from ropewalk.training.plan import Plan, check_plan, complete_plan
from ropewalk.training.sweep import train_plan

# Overrides by which any config trains in seconds.
SMALL = (
    *("train.num_steps=3", "train.warmup_steps=1", "model.vocab_size=640", "data.vocab_size=600"),
    *("model.embed_dim=32", "model.num_layers=1", "model.num_heads=1", "model.num_kv_heads=1"),
    *("model.head_dim=32", "model.mlp_dim=64", "data.context_length=64", "data.batch_size=4"),
)


def small_model(**changes: Any) -> ModelConfig:
    """Return a model of one layer with one head of 8 features; `rotary` may be an expression."""
    sizes = dict(vocab_size=64, embed_dim=16, num_layers=1, num_heads=1, num_kv_heads=1)
    fields = sizes | dict(head_dim=8, mlp_dim=16, rotary="nope") | changes
    if isinstance(fields["rotary"], str):
        fields["rotary"] = parse_pattern(fields["rotary"])
    return ModelConfig(**fields)


def tiny_config(*changes: str) -> ExperimentConfig:
    """Return the config `tiny` with overrides."""
    return overrides_lib.apply(find_config("tiny"), changes)


def make_plan(
    configs: Sequence[ExperimentConfig], runs: Sequence[RunDirectory], overrides: Sequence[str] = ()
) -> Plan:
    """Return the plan that trains members together."""
    members = [Member(run, overrides, config) for run, config in zip(runs, configs, strict=True)]
    return complete_plan(check_plan(members))


def train_run(config: ExperimentConfig, path: Path) -> RunDirectory:
    """Train a run to its last step."""
    run = RunDirectory(path)
    assert train_plan(make_plan([config], [run]))
    return run


def write_run(
    path: Path,
    config: ExperimentConfig,
    tokenizer: bytes = b"",
    steps: Sequence[int] = (4,),
    salt: int = 0,
) -> RunDirectory:
    """Write a run directory as training leaves it; its parameters are the initial ones."""
    run = RunDirectory(path)
    run.write_config(config, [])
    run.tokenizer_path.write_bytes(tokenizer)
    checkpoints = Checkpoints(run, keep=9)
    for step in steps:
        params = transformer.init(config.model, config.seed + 100 * step + salt)
        checkpoints.save(step, params, {"count": np.zeros(1)}, DataState(fingerprint=""), config)
    checkpoints.close()
    return run


def token_nll(config: ModelConfig, params: Any, hidden_BTD: Any, targets_BT: Any) -> jax.Array:
    """Return the loss of each target, nats, in the chunks of `loss.total_nll`."""

    def in_chunks(output_VD, *arrays_BT):
        nll = jax.checkpoint(functools.partial(loss._nll, output_VD))
        return loss._over_chunks(config, nll, *arrays_BT)

    mapped = vocabulary.map_shards(loss._gathered(in_chunks))
    return mapped(transformer.output_matrix(config, params), hidden_BTD, targets_BT)
