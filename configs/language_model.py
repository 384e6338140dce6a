"""A small language model on RedPajama-like text, pretrained from scratch at several bases.

A plain Llama of 4.2M parameters: no key smearing, no aligned projections, no retrieval documents.
Members are four bases with three seeds each; a seed sets initialization and data order. The claims
and the forecasts are in docs/language_model.md.

Cost: 25 MFLOP and 3.4 of attention per token, 10M tokens per member: 2.9e14 FLOPs. The twelve
members take about ten hours on two CPU cores. An estimate for one H100 is four minutes in all, of
which most is compilation and text.
"""

from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope

configs = [
    ExperimentConfig(
        name="language_model",
        question="What does a small base cost a language model, and at which distances?",
        members=tuple(
            (f"model.rotary.base={base}", f"seed={seed}")
            for seed in (0, 1, 2)
            for base in (10, 100, 1_000, 10_000)
        ),
        model=ModelConfig(
            vocab_size=4096,
            embed_dim=256,
            num_layers=4,
            num_heads=4,
            head_dim=64,
            mlp_dim=688,
            rotary=Rope(base=10_000.0),
        ),
        data=DataConfig(
            source="jsonl",
            path="data/redpajama",
            vocab_size=4096,
            context_length=512,
            batch_size=16,
        ),
        train=TrainConfig(
            num_steps=1221, learning_rate=3e-3, warmup_steps=100, log_every=10, save_every=50
        ),
        evals=EvalConfig(
            tasks=(
                "perplexity",
                "lagcopy(text=natural,passage=32,crops=16)",
                "lagcopy(text=control,passage=32,crops=16)",
                "fixed_target",
                "repeated",
            ),
            documents=256,
        ),
    )
]
