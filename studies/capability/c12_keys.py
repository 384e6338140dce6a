"""C12: does the number of key ids decide the effective context of one head?

Documents have 32 pairs of 32, 64, 128 or 256 key ids; distances and frequencies are the same. D_H,
which takes other keys for independent noise, forecasts the same L50 for all. A head that learns a
code for its keys does better with fewer. At equal tokens a key of 256 has an eighth of the answers
that a key of 32 has, so compare members at equal answers per key: 32 ids after 1M tokens with 64
after 2M, 128 after 4M and 256 after 8M. Key ids beyond 64 are taken from the fillers, so the
vocabulary is 1024.

Cost: 4M tokens take two minutes of one core for each member and seed.
"""

from configs.changes import change
from studies.capability.recipe import SHORT
from studies.capability.results import rise
from studies.card import Card, Claim, Member

BASES, NUM_KEYS = (10, 30, 100), (32, 64, 128, 256)


def member(base: int, keys: int) -> Member:
    """Return a member with a base, and documents whose keys are `keys` different ids."""
    task = f"[kv(keys={keys})]"
    overrides = f"model.rotary.base={base}", f"data.retrieval_tasks={task}", f"evals.tasks={task}"
    # At base 100 a member sees everything up to 125 tokens.
    longer = ("data.context_length=256", "data.batch_size=4") if base == 100 else ()
    return Member(name=f"base={base},keys={keys}", overrides=(*overrides, *longer))


cards = [
    Card(
        name="C12",
        question="Does the number of key ids decide the effective context of one head?",
        config=change(SHORT, model=dict(vocab_size=1024), data=dict(vocab_size=1024)),
        members=tuple(member(base, keys) for base in BASES for keys in NUM_KEYS),
        tokens=4_000_000,
        claims=tuple(
            Claim(
                text=f"At base {base} and equal tokens, L50 falls by 0.25 octaves or more from 32 "
                "to 256 key ids.",
                measure=rise(f"base={base},keys=32", f"base={base},keys=256"),
                at_most=-0.25,
            )
            for base in BASES
        ),
        is_blind=True,
        refuted_if="L50 is the same for all numbers of key ids, as D_H forecasts",
    )
]
