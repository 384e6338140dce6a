"""What the cards of this study share: one small model and key-value recall, nothing else.

The model is one layer, 128 wide whatever its heads, so that heads and their size do not change
what else it can compute. `shift_keys` and `align_query_key` make retrieval learnable in a fraction
of a million tokens; whether they decide anything is what card C6 asks. Rows are few and steps are
many: on one core 1,024 tokens a step train faster, by token and by time, than 2,048.

On one core of the machine it was made on (x86-64, two cores, float32), 1 layer x 1 head of 64
features trains 70 to 80 thousand tokens a second at context 128 and reaches a ceiling of .99 within
.2M tokens.
"""

import math
from collections.abc import Callable

import numpy as np

from configs.changes import change
from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope
from studies.card import Measured, Results

LONG = ExperimentConfig(
    name="capability",
    question="",
    model=ModelConfig(
        vocab_size=512,
        embed_dim=128,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=64,
        mlp_dim=128,
        rotary=Rope(base=10.0),
        shift_keys=True,
        align_query_key=True,
    ),
    data=DataConfig(
        source="retrieval",
        vocab_size=512,
        context_length=256,
        batch_size=4,
        retrieval_tasks=("kv",),
    ),
    train=TrainConfig(
        num_steps=1000,  # a card's budget says how many
        learning_rate=5e-3,
        schedule="wsd",
        warmup_steps=40,
        final_fraction=0.05,
        beta2=0.98,
    ),
    evals=EvalConfig(tasks=("kv",), documents=256),
)
SHORT = change(LONG, data=dict(context_length=128, batch_size=8))


def heads(number: int, size: int = 64) -> tuple[str, ...]:
    """Overrides: as many heads, of that many features each."""
    sizes = f"model.num_heads={number}", f"model.num_kv_heads={number}"
    return (*sizes, f"model.head_dim={size}") if size != 64 else sizes


def octaves(measured: list[Measured]) -> float:
    """log2 of L50 in tokens, the mean over seeds; beyond all distances counts as the longest."""
    return float(np.mean([math.log2(min(one.l50, one.longest)) for one in measured]))


def accuracy(measured: list[Measured]) -> float:
    """Mean accuracy over all distances asked, the mean over seeds."""
    return float(np.mean([one.mean_accuracy for one in measured]))


def when_run(
    members: tuple[str, ...],
    judge: Callable[..., bool],
    *,
    measurements: tuple[str, ...] = ("whole",),
    task: str = "kv",
) -> Callable[[Results], bool | None]:
    """What refutes a claim about some members: `judge`, once all of them have been run.

    Args:
      members: whose runs it needs.
      judge: from what was measured of each member by each measurement, a list each in this order,
        to whether that refutes the claim.
      measurements: of the members.
      task: by its name.
    """

    def refuted(results: Results) -> bool | None:
        found = [results.of(member, by, task) for member in members for by in measurements]
        return judge(*found) if all(found) else None

    return refuted


def moves_too_little(first: str, last: str) -> Callable[[Results], bool | None]:
    """Whether L50 moves less than half as many octaves from one member to another as forecast."""

    def refuted(results: Results) -> bool | None:
        before, after = results.of(first), results.of(last)
        if not (before and after):
            return None
        longest = before[0].longest
        one, other = (math.log2(min(results.forecast(name), longest)) for name in (first, last))
        return (octaves(after) - octaves(before)) / (other - one) < 0.5

    return refuted
