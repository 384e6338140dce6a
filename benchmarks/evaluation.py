"""Scoring, and a retrieval task of a model with a published tokenizer, beside a forward pass."""

import argparse
import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
import tokenizers
from tokenizers import processors

from ropewalk.benchmarks.program import random_batch
from ropewalk.benchmarks.protocol import Result, Setting, alternate, timed
from ropewalk.configs import small
from ropewalk.configs.changes import change, heads
from ropewalk.data.task import Document, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import parse, score
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.model import transformer

SIZES = {
    "sizes of `small`": {},
    "10M parameters": dict(heads(5), vocab_size=8192, num_layers=6, mlp_dim=864),
}


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the ratio for two sizes, and that of needles in 8 documents of 1,024 tokens."""
    (config,) = small.configs
    for name, changes in SIZES.items():
        seconds = time_scoring(change(config, model=changes), setting.rounds)
        yield Result.from_seconds(
            f"scoring, {name}",
            "time of scoring over a forward pass with logits over the same tokens",
            seconds,
        )
    config = change(config, model=SIZES["10M parameters"], data=dict(context_length=1024))
    yield Result.from_seconds(
        "needle, 10M parameters",
        "time of making and scoring documents, all text encoded in one piece, over a forward pass",
        time_task(config, setting.rounds),
    )


def time_scoring(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    """Time `evals.score` and a forward pass over the same tokens, all of which are answers."""
    batch, T = random_batch(config), config.data.context_length
    ids = np.concatenate([batch["tokens"], batch["targets"][:, -1:]], axis=1)
    starts = np.arange(1, T + 1, 4)
    answers = np.stack([starts, np.minimum(4, T + 1 - starts), starts], axis=1).astype(np.int32)
    documents = [Document(tokens=row, answers=answers, number=i) for i, row in enumerate(ids)]
    return _time(config, lambda: documents, rounds)


def time_task(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    """Time the task needle with a tokenizer that joins digits, and a forward pass."""
    context = TaskContext(
        data=config.data, tokenizer=_joined_digits(), length=config.data.context_length, seed=0
    )
    task = parse("needle(depths=8)")
    return _time(config, lambda: task.documents(context, range(1)), rounds)


def _joined_digits() -> Tokenizer:
    """Return a byte-level tokenizer of GPT-2's kind, whose pieces have several digits."""
    library = tokenizers.ByteLevelBPETokenizer()
    numbers = " ".join(map(str, range(10**6, 10**7, 997)))
    texts = [inspect.getsource(argparse), numbers]
    library.train_from_iterator(
        texts, 4096, special_tokens=["<s>", "</s>"], min_frequency=0, show_progress=False
    )
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        library.save(str(path))
        return Tokenizer(path)


def _time(
    config: ExperimentConfig, documents: Callable[[], Sequence[Document]], rounds: int
) -> dict[str, list[float]]:
    """Time making and scoring documents, and a forward pass over as many rows and tokens."""
    T = config.data.context_length
    rows, batch = len(documents()), random_batch(config)
    model = config.model.forward_architecture()
    params = jax.jit(functools.partial(transformer.init, model))(0)
    table = config.model.position_table(T)
    candidate = score.Candidate(params, lambda row_length: table)
    inputs = [batch[name][:rows] for name in ("tokens", "positions", "segment_ids")]
    assert len(inputs[0]) == rows

    @jax.jit
    def forward(params, *inputs_BT):
        hidden_BTD = transformer.hidden(model, params, table, *inputs_BT)
        return transformer.unembed(model, params, hidden_BTD)

    functions = {
        "scoring": timed(lambda: score.score(model, [candidate], documents(), T).nll),
        "forward": timed(lambda: forward(params, *inputs)),
    }
    return alternate(functions, rounds)
