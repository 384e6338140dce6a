"""Scoring beside a forward pass with logits over the same tokens."""

import functools
from collections.abc import Iterator

import jax
import numpy as np

from ropewalk.configs import small
from ropewalk.configs.changes import change, heads
from ropewalk.data.task import Document
from ropewalk.evals import score
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.model import transformer
from ropewalk.tpu.benchmarks.program import random_batch
from ropewalk.tpu.benchmarks.protocol import Result, Setting, alternate, timed

SIZES = {
    "sizes of `small`": {},
    "10M parameters": dict(heads(5), vocab_size=8192, num_layers=6, mlp_dim=864),
}


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the ratio for two sizes."""
    (config,) = small.configs
    for name, changes in SIZES.items():
        yield Result.from_seconds(
            f"scoring, {name}",
            "time of scoring over a forward pass with logits over the same tokens",
            time_scoring(change(config, model=changes), setting.rounds),
        )


def time_scoring(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    """Time `evals.score` and a forward pass over the same tokens, all of which are answers."""
    batch, T = random_batch(config), config.data.context_length
    ids = np.concatenate([batch["tokens"], batch["targets"][:, -1:]], axis=1)
    starts = np.arange(1, T + 1, 4)
    answers = np.stack([starts, np.minimum(4, T + 1 - starts), starts], axis=1).astype(np.int32)
    documents = [Document(tokens=row, answers=answers, number=i) for i, row in enumerate(ids)]
    model = config.model.forward_architecture()
    params = jax.jit(functools.partial(transformer.init, model))(0)
    table = config.model.position_table(T)
    candidate = score.Candidate(params, lambda row_length: table)
    inputs = [batch[name] for name in ("tokens", "positions", "segment_ids")]

    @jax.jit
    def forward(params, *inputs_BT):
        hidden_BTD = transformer.hidden(model, params, table, *inputs_BT)
        return transformer.unembed(model, params, hidden_BTD)

    functions = {
        "scoring": timed(lambda: score.score(model, [candidate], documents, T).nll),
        "forward": timed(lambda: forward(params, *inputs)),
    }
    return alternate(functions, rounds)
