"""A model that learns to retrieve within minutes on a CPU; the demo and the cards start from it.

Two layers of two heads train on the standard library's source and on retrieval documents. Retrieval
is learned within a million tokens because of `shift_keys` (key smearing) and `align_query_key` (see
`model.config`), of key-value recall at all distances in seven of eight rows, and of many small
updates.
"""

from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="small",
        question="What can a model learn in minutes?",
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
