"""The models that the cards start from, at three scales. No experiment of its own.

CPU is `configs/small.py`: two layers that learn to retrieve within a million tokens. GPU has ten
million parameters and the same aids (`shift_keys`, `align_query_key`, half of the rows retrieval).
The papers' own have none. Heads keep 64 features (128 in the papers'): the bound depends on it.

Extended contexts are eight times the pretrained one, as from Llama 2's 4096 tokens to 32768, and
bases shrink with them. Llama 2's slowest pair rotates by 27 degrees within 4096 tokens, that of
base 100 and 64 features by 42 degrees within 64; 32768 tokens at base 500 are 46 quarter periods of
that pair, 512 tokens at base 10 are 35.
"""

from configs.base_30m import configs as base_30m
from configs.changes import change, heads
from configs.paper_2b import configs as paper_2b
from configs.scaling import scale_7b
from configs.small import configs as small
from data.config import DataConfig
from experiment import overrides
from experiment.config import ExperimentConfig, TrainConfig
from studies.card import Card, Member

(CPU,) = small
GPU = change(
    *base_30m,
    members=(),
    model=dict(
        heads(6),
        vocab_size=4096,
        num_layers=6,
        mlp_dim=1024,
        shift_keys=True,
        align_query_key=True,
        remat="none",
    ),
    data=dict(vocab_size=4096, context_length=1024, batch_size=64, retrieval_fraction=0.5),
    train=TrainConfig(
        num_steps=1500, learning_rate=2e-3, warmup_steps=50, beta2=0.98, save_every=200
    ),
    evals=dict(tasks=("kv", "lines", "needle", "perplexity")),
)
PAPER_2B = change(*paper_2b, evals=dict(tasks=("lines", "needle", "perplexity")))

# Llama 2 7B as Men et al. fine-tune it (Section 5.1 and Table 5, whose "2e5" must be 2e-5).
# `figure6_llama2_7b` has how `runs/llama2_7b` comes by its parameters.
LLAMA2_7B = change(
    scale_7b,
    start_from="runs/llama2_7b",
    data=DataConfig(
        source="redpajama",
        path="data/redpajama",
        tokenizer="runs/llama2_7b/tokenizer.model",
        context_length=32_768,
        batch_size=128,
        num_workers=8,
    ),
    train=TrainConfig(num_steps=1000, learning_rate=2e-5, schedule="constant", weight_decay=0.0),
    evals=dict(tasks=("lines", "needle", "perplexity")),
)

# The parents of what is continued at a longer context.
CPU_SHORT = change(
    CPU,
    model=dict(rotary=dict(base=100.0)),
    data=dict(context_length=64, batch_size=32),
    train=dict(num_steps=400),
)
GPU_SHORT = change(
    GPU, model=dict(rotary=dict(base=500.0)), data=dict(context_length=512, batch_size=128)
)


def extent(*, context_length: int, batch_size: int, num_steps: int) -> tuple[str, ...]:
    """Overrides: how much a stage reads."""
    return (
        f"data.context_length={context_length}",
        f"data.batch_size={batch_size}",
        f"train.num_steps={num_steps}",
    )


# Overrides of what continues a run: of its training, and of all but its frequencies where it goes
# on at eight times the length.
CONTINUED = ("train.schedule=constant", "train.warmup_steps=10", "train.weight_decay=0")
CPU_CONTINUED = ("train.learning_rate=1e-3", *CONTINUED)
GPU_CONTINUED = ("train.learning_rate=5e-4", *CONTINUED)
CPU_LONGER = (
    "data.context_length=512",
    "data.batch_size=4",
    "data.retrieval_fraction=0.75",
    "train.num_steps=400",
    *CPU_CONTINUED,
)
GPU_LONGER = (*extent(context_length=4096, batch_size=16, num_steps=400), *GPU_CONTINUED)


def at_each_scale(
    name: str, question: str, *, source: str, refuted_if: str, **scales: ExperimentConfig
) -> list[Card]:
    """The cards `NAME_cpu`, `NAME_gpu` and `NAME_paper`, of configs with their members."""
    return [
        Card(
            name=f"{name}_{scale}",
            question=question,
            shared=change(config, members=()),
            members=tuple(
                Member(name=member, overrides=tuple(own))
                for member, own in overrides.named(config.members)
            )
            or (Member(name="alone"),),
            source=source,
            refuted_if=refuted_if,
        )
        for scale, config in scales.items()
    ]


def continued(name: str, question: str, *, source: str, refuted_if: str, **scales) -> list[Card]:
    """Cards whose members go on from the parent they train, at eight times the parent's length.

    The paper's scale trains no parent: its members are what they are.
    """
    longer = {"cpu": CPU_LONGER, "gpu": GPU_LONGER, "paper": ()}
    for scale, config in scales.items():
        if changes := longer[scale]:
            start = (f"start_from=runs/{name}_{scale}/parent", *changes)
            members = tuple((*start, *own) for own in config.members)
            scales[scale] = change(config, members=members)
    return at_each_scale(name, question, source=source, refuted_if=refuted_if, **scales)
