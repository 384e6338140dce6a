"""Ablation of bases from scratch at the size of GPT-2 small, context 4096.

Question: does the answer at 30M parameters hold at four times the size and twice the context?
"""

from ropewalk.configs.base_30m import configs as base_30m
from ropewalk.configs.changes import change, heads
from ropewalk.experiment.config import TrainConfig

configs = [
    change(
        *base_30m,
        name="base_125m",
        question="Does the bound of a 30M model's context hold for a 125M model?",
        model=dict(heads(12), vocab_size=32_000, num_layers=12, mlp_dim=2048),
        data=dict(vocab_size=32_000, context_length=4096, batch_size=64),
        train=TrainConfig(num_steps=9_600, learning_rate=6e-4, warmup_steps=500, accumulate=4),
    )
]
