"""The smallest model with every part, for tests. It uses the data of `small` in shorter rows."""

from ropewalk.configs.changes import change
from ropewalk.configs.small import configs as small
from ropewalk.experiment.config import TrainConfig

configs = [
    change(
        *small,
        name="tiny",
        question="Does everything run? (tests)",
        model=dict(
            embed_dim=32,
            num_kv_heads=1,
            head_dim=16,
            mlp_dim=64,
            shift_keys=False,
            align_query_key=False,
        ),
        data=dict(context_length=64, retrieval_fraction=0.25, retrieval_tasks=("kv", "lagcopy")),
        train=TrainConfig(
            num_steps=20, learning_rate=3e-3, warmup_steps=2, log_every=1, save_every=5
        ),
        evals=dict(tasks=("kv", "lagcopy", "perplexity"), documents=8),
    )
]
