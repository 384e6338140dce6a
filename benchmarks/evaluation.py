"""Scoring beside a bare forward pass, and the whole evaluation of eight members."""

import contextlib
import functools
import io
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks.timing import alternate, compare, random_batch
from configs import find_config
from configs.changes import change, heads
from data.task import Document
from evals import runner, score
from experiment.config import ExperimentConfig
from model import transformer
from model.positions import position_table
from training.sweep import train_sweep

MEMBERS, TASKS, LENGTHS = 8, ("kv", "lagcopy", "lines", "perplexity"), (256, 512, 1024)
SIZES = {
    "sizes of `small`": {},
    "10M parameters": dict(heads(5), vocab_size=8192, num_layers=6, mlp_dim=864),
}


def main(rounds: int) -> None:
    for name, changes in SIZES.items():
        print(f"{name}:")
        compare(scoring(change(find_config("small"), model=changes), rounds))
    whole()


def scoring(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    """`evals.score` and a plain forward pass over the same tokens, every token an answer's."""
    model, batch = runner.network(config.model), random_batch(config)
    T = config.data.context_length
    params = jax.jit(functools.partial(transformer.init, model))(0)
    table = position_table(config.model, T)
    ids = np.concatenate([batch["tokens"], batch["targets"][:, -1:]], axis=1)
    starts = np.arange(1, T + 1, 4)
    answers = np.stack([starts, np.minimum(4, T + 1 - starts), starts], axis=1).astype(np.int32)
    documents = [Document(tokens=row, answers=answers, number=i) for i, row in enumerate(ids)]
    candidate = score.Candidate(params, lambda row_length: table)
    inputs = [batch[name] for name in ("tokens", "positions", "segment_ids")]

    @jax.jit
    def forward(params, *inputs_BT):
        hidden_BTD = transformer.hidden(model, params, table, *inputs_BT)
        return transformer.unembed(model, params, hidden_BTD)

    functions = {
        "scoring": lambda: score.score(model, [candidate], documents, T).nll,
        "bare forward pass": lambda: forward(params, *inputs),
    }
    return alternate(functions, rounds)


def whole() -> None:
    """Eight members, trained for one step, from run directories to rows on disk."""
    seeds = ",".join(map(str, range(MEMBERS)))
    one_step = [f"seed={seeds}", "data.seed=0", "train.num_steps=1", "train.warmup_steps=0"]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        train_sweep(find_config("small"), Path(folder), one_step, command="")
        score.compiled_pass.cache_clear()
        start = time.perf_counter()
        results = runner.evaluate([Path(folder)], runner.Options(tasks=TASKS, lengths=LENGTHS))
        seconds = time.perf_counter() - start
    answers = sum(len(rows["task"]) for _, _, rows in results)
    print(
        f"{MEMBERS} members, {','.join(TASKS)} at {','.join(map(str, LENGTHS))}: "
        f"{seconds:.0f} s, compilation included, {answers:,} answers, "
        f"{score.compiled_pass.cache_info().misses} compilations for "
        f"{len(TASKS) * len(LENGTHS)} pairs of task and length"
    )
