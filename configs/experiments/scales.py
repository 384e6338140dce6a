"""The models that the cards start from, at three scales. No experiment of its own.

CPU is `configs/demo.py`: two layers that learn to retrieve within a million tokens. GPU has ten
million parameters and the same aids (`shift_keys`, `align_query_key`, half of the rows retrieval).
The papers' own have none. Heads keep 64 features (128 in the papers'): the bound depends on it.

Extended contexts are eight times the pretrained one, as from Llama 2's 4096 tokens to 32768, and
bases shrink with them. Llama 2's slowest pair has turned 27 degrees within 4096 tokens, base 100
turns one of 64 features 42 degrees within 64; 32768 tokens at base 500 are 46 quarter periods of
that pair, 512 tokens at base 10 are 35.
"""

import dataclasses

from configs.demo import configs as demo_configs
from configs.paper_2b import configs as paper_2b
from configs.scaling import scale_7b
from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, MeshConfig, TrainConfig
from experiment.dotted import apply
from model.config import ModelConfig
from model.rotary.rope import Rope

(demo,), (PAPER_2B,) = demo_configs, paper_2b

CPU = dataclasses.replace(demo, name="cpu", members=())

# The parent of what is continued at a longer context.
CPU_SHORT = apply(
    CPU,
    [
        "model.rotary.base=100",
        "data.context_length=64",
        "data.batch_size=32",
        "train.num_steps=400",
    ],
)

GPU = ExperimentConfig(
    name="gpu",
    question="(the start of others)",
    model=ModelConfig(
        vocab_size=4096,
        embed_dim=384,
        num_layers=6,
        num_heads=6,
        num_kv_heads=6,
        head_dim=64,
        mlp_dim=1024,
        rotary=Rope(base=10_000.0),
        shift_keys=True,
        align_query_key=True,
        compute_dtype="bfloat16",
    ),
    data=DataConfig(
        source="jsonl",
        path="data/redpajama",
        vocab_size=4096,
        context_length=1024,
        batch_size=64,
        retrieval_fraction=0.5,
        num_workers=4,
    ),
    train=TrainConfig(
        num_steps=1500, learning_rate=2e-3, warmup_steps=50, beta2=0.98, save_every=200
    ),
    evals=EvalConfig(documents=128),
)

# Llama 2 7B as Men et al. fine-tune it (Section 5.1 and Table 5, whose "2e5" must be 2e-5).
# `runs/llama2_7b` has to hold its parameters.
LLAMA2_7B = ExperimentConfig(
    name="llama2_7b",
    question="(the start of others)",
    start_from="runs/llama2_7b",
    model=scale_7b.model,
    data=DataConfig(
        source="redpajama",
        path="data/redpajama",
        tokenizer="runs/llama2_7b/tokenizer.model",
        context_length=32_768,
        batch_size=128,
        num_workers=8,
    ),
    train=TrainConfig(num_steps=1000, learning_rate=2e-5, schedule="constant", weight_decay=0.0),
    mesh=MeshConfig(data=1, fsdp=-1),
    evals=EvalConfig(tasks=("lines", "needle", "perplexity"), documents=256),
)

# What a run continues with at eight times the length, at each scale; members add their schedule.
CPU_LONGER = (
    "data.context_length=512",
    "data.batch_size=4",
    "data.retrieval_fraction=0.75",
    "train.num_steps=400",
    "train.learning_rate=1e-3",
    "train.schedule=constant",
    "train.warmup_steps=10",
    "train.weight_decay=0",
)
GPU_LONGER = (
    "data.context_length=4096",
    "data.batch_size=16",
    "train.num_steps=400",
    "train.learning_rate=5e-4",
    "train.schedule=constant",
    "train.warmup_steps=10",
    "train.weight_decay=0",
)
