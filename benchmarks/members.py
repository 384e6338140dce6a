"""One step of a four-member sweep beside four steps of one: in turn, and batched, in one run."""

import functools

import jax

from benchmarks.timing import alternate, compare, one_member, random_batch, updates
from configs import find_config
from training.members import stack
from training.step import train_step

MEMBERS = 4


def main(rounds: int) -> None:
    config = find_config("small")
    batch, step = random_batch(config), functools.partial(train_step, config)
    members = [one_member(config) for _ in range(MEMBERS)]
    state, member = stack(members)

    def in_turn(state, member, *shared):
        return jax.lax.map(lambda one: step(*one, *shared), (state, member))

    batched = jax.vmap(step, in_axes=(0, 0, None, None))
    single = jax.jit(step, donate_argnums=0)
    singles = [updates(single, *one, batch) for one in members]
    seconds = alternate(
        {
            "lax.map": updates(jax.jit(in_turn, donate_argnums=0), state, member, batch),
            "vmap": updates(jax.jit(batched, donate_argnums=0), state, member, batch),
            "four single steps": lambda: [jax.block_until_ready(update()) for update in singles],
        },
        rounds,
    )
    compare(seconds)
