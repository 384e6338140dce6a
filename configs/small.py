"""A model that learns to retrieve within minutes on a CPU: what the demo and the cards start from.

Two layers of two heads, on the standard library's source and on retrieval documents. Cost: two to
three minutes of two cores for a million tokens of each of six members. What makes retrieval
learnable this quickly is on: `shift_keys` and `align_query_key` (see `model.config`), seven rows in
eight being key-value recall at all distances, and many small steps.
"""

from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="small",
        question="What can a model of minutes learn?",
        model=ModelConfig(
            vocab_size=512,
            embed_dim=128,
            num_layers=2,
            num_heads=2,
            head_dim=64,
            mlp_dim=256,
            rotary=Rope(base=10_000.0),
            shift_keys=True,
            align_query_key=True,
        ),
        data=DataConfig(
            source="local",
            vocab_size=512,
            context_length=256,
            batch_size=8,
            retrieval_fraction=0.875,
            retrieval_tasks=("kv",),
        ),
        train=TrainConfig(
            num_steps=500, learning_rate=3e-3, warmup_steps=20, beta2=0.98, save_every=100
        ),
        evals=EvalConfig(tasks=("kv", "perplexity"), documents=64),
    )
]
