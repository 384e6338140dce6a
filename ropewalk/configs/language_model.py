"""A small language model on RedPajama-like text, pretrained from scratch at several bases.

A plain Llama of 4.2M parameters: no key smearing, no aligned projections, no retrieval documents.
The results are in docs/language_model.md.

    language_model            four bases, three seeds each, of initialization and data order
    language_model_variants   other rotations of the same model; one is removed at the end (DroPE)
    language_model_continued  base 100, continued at base 1e4 and at base 100: give start_from
    language_model_long       six bases after four times the tokens
"""

from ropewalk.configs.changes import change, vary
from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.rope import Rope

language_model = ExperimentConfig(
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
        compute_dtype="float32",  # of all rows, also on GPUs
    ),
    data=DataConfig(
        source="jsonl",
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

STEPS_8M, STEPS_2M = 977, 244

configs = [
    language_model,
    change(
        language_model,
        name="language_model_variants",
        question="What do other rotations cost a language model?",
        members=(
            ("model.rotary.base=1000000",),
            ("model.rotary=nope",),
            # Three and eight of the 32 pairs of a head: 9.4% and a quarter of its features.
            ("model.rotary=rope(base=10000,rotary_fraction=0.09375)",),
            ("model.rotary=rope(base=10000,rotary_fraction=0.25)",),
            # DroPE (ICLR 2026): rotation is removed for the last fifth of the tokens.
            (
                f"train.num_steps={STEPS_8M}",
                f"stages=[[model.rotary=nope,train.num_steps={STEPS_2M},"
                "train.learning_rate=1e-3,train.warmup_steps=20]]",
            ),
        ),
    ),
    change(
        language_model,
        name="language_model_continued",
        question="Does a larger base restore copying, and after how many tokens?",
        members=vary("model.rotary.base", (100, 10_000)),
        # Rows that the first 10M tokens do not have.
        data=dict(seed=10),
        train=dict(num_steps=STEPS_2M, learning_rate=1e-3, warmup_steps=20, save_every=61, keep=4),
    ),
    change(
        language_model,
        name="language_model_long",
        question="Does the cost of a small base grow with training?",
        members=vary("model.rotary.base", (10, 30, 100, 300, 1_000, 10_000)),
        train=dict(num_steps=4883),
    ),
]
