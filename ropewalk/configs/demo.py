"""Demo: effective context by base and number of heads, measured in minutes on a CPU.

Eight models of one layer train side by side: three bases, each with one head and with four, and two
controls with known answers (no rotation: no limit; a window of 32 tokens: nothing beyond it).
Expected: one head sees up to an edge that its base sets; four heads see beyond it.

All members use `shift_keys` (key smearing) and `align_query_key` (see `configs.small`). Without the
first, recall takes several times the tokens.
"""

from ropewalk.configs.changes import change
from ropewalk.configs.small import configs as small

configs = [
    change(
        *small,
        name="demo",
        question="How far does a model see, given its RoPE base and its heads?",
        members=(
            *(
                (f"model.rotary.base={base}", f"model.num_heads={heads}")
                for heads in (1, 4)
                for base in (10, 30, 10_000)
            ),
            ("model.rotary=nope", "model.num_heads=1"),
            ("model.rotary.base=10000", "model.num_heads=4", "model.window=32"),
        ),
        model=dict(num_layers=1, num_heads=4, mlp_dim=128),
        data=dict(context_length=128),
        train=dict(num_steps=1000, learning_rate=5e-3, warmup_steps=40, save_every=200),
    )
]
