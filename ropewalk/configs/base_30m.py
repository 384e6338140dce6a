"""Ablation of bases from scratch at 30M parameters on one GPU.

Question: does the effective context of a language model follow the theory length of the base
it was pretrained with, or one of the periods of its slowest pair?

head_dim stays 64, as everywhere here: the bound depends on it.
"""

from ropewalk.configs.changes import vary
from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="base_30m",
        question="Which length of a base bounds the retrieval of a 30M model?",
        members=vary("model.rotary.base", (30, 100, 300, 1_000, 10_000, 1_000_000)),
        model=ModelConfig(
            vocab_size=8192,
            embed_dim=512,
            num_layers=8,
            num_heads=8,
            num_kv_heads=8,
            head_dim=64,
            mlp_dim=1376,
            rotary=Rope(base=10_000.0),
            compute_dtype="bfloat16",
            remat="dots",
        ),
        data=DataConfig(
            source="jsonl",
            vocab_size=8192,
            context_length=2048,
            batch_size=32,
            retrieval_fraction=0.1,
            num_workers=4,
        ),
        train=TrainConfig(num_steps=4_600, learning_rate=1e-3, warmup_steps=200),
        evals=EvalConfig(documents=128),
    )
]
