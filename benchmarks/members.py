"""One step of a four-member sweep beside four steps of one: in turn, and batched, in one run."""

import functools

import jax
import numpy as np

from benchmarks.timing import alternate, milliseconds, random_batch, ratio
from experiment.overrides import find_config
from model.positions import position_table
from training.members import stack
from training.step import MemberArrays, init_state, train_step

MEMBERS = 4


def main(rounds: int) -> None:
    config = find_config("demo")
    batch = random_batch(config)
    table = position_table(config.model, config.data.context_length)
    one = MemberArrays(table, np.float32(config.train.learning_rate))
    many = stack([one] * MEMBERS)

    def function(*arguments):
        return train_step(config, *arguments)

    make = functools.partial(init_state, config)

    single = jax.jit(function, donate_argnums=0)
    in_turn = jax.jit(
        lambda state, member, batch, step: jax.lax.map(
            lambda pair: function(*pair, batch, step), (state, member)
        ),
        donate_argnums=0,
    )
    batched = jax.jit(jax.vmap(function, in_axes=(0, 0, None, None)), donate_argnums=0)
    seeds = np.arange(MEMBERS, dtype=np.uint32)
    states = {
        "four single steps": [jax.jit(make)(seed) for seed in seeds],
        "lax.map": jax.jit(jax.vmap(make))(seeds),
        "vmap": jax.jit(jax.vmap(make))(seeds),
    }

    def singles() -> None:
        name = "four single steps"
        for index, state in enumerate(states[name]):
            states[name][index], scalars = single(state, one, batch, np.int32(0))
            jax.block_until_ready(scalars)

    def sweep(name: str, step_fn) -> None:
        states[name], scalars = step_fn(states[name], many, batch, np.int32(0))
        jax.block_until_ready(scalars)

    seconds = alternate(
        {
            "four single steps": singles,
            "lax.map": functools.partial(sweep, "lax.map", in_turn),
            "vmap": functools.partial(sweep, "vmap", batched),
        },
        rounds,
    )
    for name, times in seconds.items():
        print(
            f"{name:<18} {milliseconds(times)}, ratio to single steps "
            f"{ratio(times, seconds['four single steps'])} (least / median)"
        )
