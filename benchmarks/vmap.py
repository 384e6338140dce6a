"""Four members of `small` in one program: batched by `vmap`, or one after another by `lax.map`."""

import functools
from collections.abc import Iterator

import jax

from benchmarks.record import Result
from benchmarks.shapes import cut
from benchmarks.suite import Setting
from benchmarks.timing import alternate, init_member, make_update, random_batch
from configs import small
from training.members import stack
from training.step import train_step

MEMBERS = 4


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the time of either program over that of four single steps."""
    config = cut(small.configs[0], setting.scale)
    batch, step = random_batch(config), functools.partial(train_step, config)
    members = [init_member(config) for _ in range(MEMBERS)]
    state, arrays = stack(members)

    def in_turn(state, arrays, *shared):
        return jax.lax.map(lambda member: step(*member, *shared), (state, arrays))

    batched = jax.vmap(step, in_axes=(0, 0, None, None))
    single = jax.jit(step, donate_argnums=0)
    singles = [make_update(single, *member, batch) for member in members]
    functions = {
        "lax.map": make_update(jax.jit(in_turn, donate_argnums=0), state, arrays, batch),
        "vmap": make_update(jax.jit(batched, donate_argnums=0), state, arrays, batch),
        "singles": lambda: [jax.block_until_ready(update()) for update in singles],
    }
    seconds = alternate(functions, setting.rounds)
    for name in ("lax.map", "vmap"):
        ratio = f"a step of {MEMBERS} members over {MEMBERS} single steps"
        pair = {name: seconds[name], "singles": seconds["singles"]}
        yield Result.from_seconds(name, ratio, pair)
