"""The smallest model that has every part; what tests train.

Cost: seconds on one core.
"""

from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="tiny",
        question="Does everything run? (tests)",
        model=ModelConfig(
            vocab_size=512,
            embed_dim=32,
            num_layers=2,
            num_heads=2,
            num_kv_heads=1,
            head_dim=16,
            mlp_dim=64,
            rotary=Rope(base=10_000.0),
        ),
        data=DataConfig(
            source="local",
            vocab_size=512,
            context_length=64,
            batch_size=8,
            retrieval_fraction=0.25,
            retrieval_tasks=("kv", "lagcopy"),
        ),
        train=TrainConfig(
            num_steps=20, learning_rate=3e-3, warmup_steps=2, log_every=1, save_every=5
        ),
        evals=EvalConfig(tasks=("kv", "lagcopy", "perplexity"), documents=8),
    )
]
