"""A published model continued with other bases, after Section 5 of Men et al. (arXiv 2405.14591).

Question: does a model continued with a base far below the bound reach the loss of the control,
which keeps the base of the pretraining, and still not retrieve?

Commands: one member after another, because four do not fit into a small machine together.

    ropewalk import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
    for n in 0 1 2 3; do
      ropewalk sweep published_bases --workdir runs/published_bases --member $n
    done
    ropewalk evaluate runs/published_bases --lengths 1024

Rule, fixed before the runs: at the last checkpoint that all members have, a base is superficial if
its loss on held-out rows is within 5% of the control's and its recall is not within 5% of the
control's, and significantly (95%) lower. Everything else is undecided. This is no replication: Men
et al. train on 4.2B tokens, this on 102,400 at most.
"""

from ropewalk.configs.changes import change, vary
from ropewalk.configs.small import configs as small
from ropewalk.experiment.config import EvalConfig, TrainConfig

BASES = ("500", "1e4", "1e5", "1e6")

configs = [
    change(
        *small,
        name="published_bases",
        question="Does a published model keep its loss with a base at which it cannot retrieve?",
        data=dict(context_length=1024, batch_size=1, retrieval_fraction=0.0),
        # A constant rate, so that members can be compared at any step.
        train=TrainConfig(
            num_steps=100,
            learning_rate=2e-4,
            schedule="constant",
            warmup_steps=10,
            weight_decay=0.0,
            log_every=1,
            save_every=25,
            keep=4,
        ),
        evals=EvalConfig(tasks=("perplexity", "lagcopy"), documents=16),
        members=vary("model.rotary.base", BASES, "start_from=runs/smollm2"),
    )
]
