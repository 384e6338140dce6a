"""Two axes: how far back a model recalls, and how well it orders equal tokens, by its RoPE base.

Nine models of one layer and one head train side by side on key-value recall and on `order`: eight
bases, and one without rotation, which cannot order equal tokens. `studies/two_axes` has claims,
rows and the figure; docs/two_axes.md is the page.

    ropewalk sweep two_axes --workdir runs/two_axes
    ropewalk evaluate runs/two_axes
    ropewalk studies report two_axes
"""

from ropewalk.configs.changes import change
from ropewalk.configs.small import configs as small

configs = [
    change(
        *small,
        name="two_axes",
        question="Which bases let a model both recall and order the tokens of its context?",
        members=(
            *(
                (f"model.rotary.base={b}",)
                for b in (10, 30, 100, 300, 1000, 10000, 100000, 1000000)
            ),
            ("model.rotary=nope",),
        ),
        model=dict(num_layers=1, num_heads=1, mlp_dim=128),
        data=dict(
            source="retrieval",
            context_length=128,
            retrieval_fraction=0.0,
            retrieval_tasks=("kv", "order"),
        ),
        train=dict(num_steps=1000, learning_rate=5e-3, warmup_steps=40, save_every=1000),
        evals=dict(tasks=("kv", "order"), documents=512),
    )
]
