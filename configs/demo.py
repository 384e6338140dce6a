"""How far does a model see, given the base it was pretrained with? Measured in minutes on a CPU.

Six models, trained side by side on the standard library's source and on retrieval documents:
four bases, and two controls whose answer is known (no rotation: no limit; a window of 32 tokens:
nothing beyond it).

Cost: about five minutes on two cores, for 1M tokens per member. What makes retrieval learnable this
quickly is on for every member alike: `shift_keys` and `align_query_key` (see `model.config`), seven
rows in eight being key-value recall at all distances, and many small steps.
"""

from configs.changes import each
from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="demo",
        question="How far does a model see, given the RoPE base it was pretrained with?",
        members=(
            *each("model.rotary.base", (10, 30, 10_000), "model.num_heads=1"),
            *each("model.rotary.base", (10, 30, 10_000)),
            ("model.rotary=nope",),
            ("model.rotary.base=10000", "model.window=32"),
        ),
        model=ModelConfig(
            vocab_size=512,
            embed_dim=128,
            num_layers=1,
            num_heads=4,
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
