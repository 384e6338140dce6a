"""The models and the task that the cards of this study share.

The model has one layer, 128 wide whatever its heads, so that the number of heads and their size do
not change what else it can compute. It trains on key-value recall alone. `shift_keys` and
`align_query_key` make recall learnable in a fraction of a million tokens. Batches are small and
updates are many: on one core 1,024 tokens per update train faster than 2,048, by tokens and by
time.

On one core (x86-64, float32), 1 layer x 1 head of 64 features trains 70 to 80 thousand tokens a
second at context 128 and reaches a ceiling of .99 within .2M tokens.
"""

from ropewalk.configs.changes import change, heads
from ropewalk.configs.small import configs as small

LONG = change(
    *small,
    name="capability",
    question="",
    model=dict(
        heads(1),
        embed_dim=128,
        num_layers=1,
        mlp_dim=128,
        rotary=dict(base=10.0),
        compute_dtype="float32",  # of all rows, also on GPUs
    ),
    data=dict(source="retrieval", batch_size=4, retrieval_fraction=0.0),
    train=dict(
        num_steps=1000,  # replaced by a card's budget
        learning_rate=5e-3,
        schedule="wsd",
        warmup_steps=40,
        final_fraction=0.05,
        save_every=1000,
    ),
    evals=dict(tasks=("kv",), documents=256),
)
SHORT = change(LONG, data=dict(context_length=128, batch_size=8))

configs = {"long": LONG, "short": SHORT}
