"""Attention by the device's own kernel beside plain attention in float32, on packed rows."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import alternate, random_batch
from configs import mla, small
from configs.changes import change, heads
from experiment.config import ExperimentConfig
from model import kernels, transformer
from model.kernels import cudnn, xla
from model.positions import NO_WINDOW, position_table
from model.rotary.rope import Rope
from training.step import loss_fn

FACTOR = 2.0  # of bfloat16's own error, which another order of sums may reach
OF = "its error in float32's size over that of plain bfloat16"


class Case(NamedTuple):
    """Heads and masks.

    Attributes:
      T, N, K, H, U: tokens, query heads, key heads, width of a key and of a value.
      window: tokens a query sees; None for all.
      members: stacked in front, each with a window of its own, as in a sweep.
    """

    T: int = 1024
    N: int = 8
    K: int = 8
    H: int = 64
    U: int = 64
    window: int | None = None
    members: int = 0


CASES = {
    "documents": Case(),
    "documents, shared keys": Case(K=2, H=128, U=128),
    "documents and a window": Case(window=128),
    "documents, odd length": Case(T=1023),
    "MLA's widths": Case(H=96, U=64),
    "MLA's widths as DeepSeek's": Case(H=192, U=128),
    "members of a sweep": Case(members=3),
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Errors of outputs and gradients beside bfloat16's own; then what masks cost."""
    dry_on_cpu = setting.dry and jax.default_backend() == "cpu"
    if dry_on_cpu:
        # The same masks and paddings, through the function of JAX's that would call cuDNN.
        cudnn.IMPLEMENTATION = "xla"
        yield "XLA's attention in cuDNN's place, behind our masks"
    for name, case in CASES.items():
        if not setting.has(15):
            yield f"{name}: no time was left"
            continue
        if setting.dry:
            case = case._replace(T=case.T // 8 - 1 + case.T % 2, window=case.window and 16)
        try:
            yield from _case(name, case, cudnn.attention if dry_on_cpu else None)
        except Exception as error:  # of a compiler or a library: the other cases are still asked
            said = (str(error).splitlines() or [""])[0][:200]
            yield f"{name}: refused, {type(error).__name__}: {said}"
            nothing = math.nan
            yield Result(name=name, ratio=OF, least=nothing, median=nothing, at_most=FACTOR)
    for name, config in _networks().items():
        yield _network(name, config, 64 if setting.dry else 1024)
    for length, rows in ((4096, 4), (32_768, 1)):
        if setting.has(20) and (setting.dry or _is_cudnn(rows, length)):
            yield _cost_of_masks(max(64, int(length * setting.scale)), rows, setting)


def _inputs(case: Case, B: int = 2) -> dict[str, Any]:
    """Queries already scaled, keys, values, documents and a weight of every output."""
    random = np.random.default_rng(0)
    front = (case.members,) if case.members else ()

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=(*front, *shape)), jnp.bfloat16)

    windows = [case.window or NO_WINDOW, case.T // 8, case.T // 3, 1]
    return {
        "q_BTNH": normal(B, case.T, case.N, case.H) / np.sqrt(case.H).astype(jnp.bfloat16),
        "k_BSKH": normal(B, case.T, case.K, case.H),
        "v_BSKU": normal(B, case.T, case.K, case.U),
        "weights_BTNU": normal(B, case.T, case.N, case.U),
        "window": np.array(windows[: case.members] if case.members else windows[0], np.int32),
        "ids_BT": np.sort(random.integers(1, 6, size=(B, case.T)), axis=1).astype(np.int32),
    }


def results(attend: Callable, case: Case, inputs: dict[str, Any]) -> list[np.ndarray]:
    """The output, and the gradients of q, k and v under a weighted sum; float32."""
    ids_BT = inputs["ids_BT"]

    def one(q_BTNH, k_BSKH, v_BSKU, weights_BTNU, window):
        def total(q_BTNH, k_BSKH, v_BSKU):
            out_BTNU = attend(q_BTNH, k_BSKH, v_BSKU, ids_BT, window)
            return jnp.sum(out_BTNU.astype(jnp.float32) * weights_BTNU), out_BTNU

        gradient = jax.grad(total, argnums=(0, 1, 2), has_aux=True)
        gradients, out_BTNU = gradient(q_BTNH, k_BSKH, v_BSKU)
        return out_BTNU, *gradients

    order = ("q_BTNH", "k_BSKH", "v_BSKU", "weights_BTNU", "window")
    given = [inputs[name] for name in order]
    found = jax.jit(jax.vmap(one) if case.members else one)(*given)
    return [np.asarray(x, np.float32) for x in found]


def _case(name: str, case: Case, attend: Callable | None) -> Iterator[Result | str]:
    """Of `attend`, or of what the device has for such rows."""
    chosen = kernels.choose(2, case.T, case.H, case.U, jnp.bfloat16)
    if attend is None:
        yield f"{name}: {chosen.name}" + f" ({chosen.why})" * bool(chosen.why)
    attend = attend or chosen.attend
    inputs = _inputs(case)
    with jax.default_matmul_precision("highest"):
        exact = results(xla.reference, case, inputs)
    own = errors(results(xla.attention, case, inputs), exact)
    found = results(attend, case, inputs)
    its = errors(found, exact)
    for what, part in (("outputs", slice(0, 1)), ("gradients", slice(1, 4))):
        ratio = max(its[part]) / max(own[part])
        yield Result(
            name=f"{name}: {what}",
            ratio=OF,
            least=ratio,
            median=ratio,
            at_most=FACTOR,
            measured={"its error": max(its[part]), "of bfloat16": max(own[part])},
        )
    yield _leak(name, attend, case, inputs)


def errors(found: list[np.ndarray], exact: list[np.ndarray]) -> list[float]:
    """Of each array as a share of its size."""
    pairs = zip(found, exact, strict=True)
    return [float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs]


def _leak(name: str, attend: Callable, case: Case, inputs: dict[str, Any]) -> Result:
    """Keys and values before a row's last document get a gradient of exactly 0 from it."""
    last_BT = inputs["ids_BT"] == inputs["ids_BT"].max(axis=1, keepdims=True)
    weights = jnp.where(last_BT[..., None, None], inputs["weights_BTNU"], 0)
    _, _, *gradients = results(attend, case, {**inputs, "weights_BTNU": weights})
    other = max(float(np.abs(np.where(last_BT[..., None, None], 0, x)).max()) for x in gradients)
    ratio = other / max(float(np.abs(x).max()) for x in gradients)
    return Result(
        name=f"{name}: across documents",
        ratio="largest gradient of keys and values of other documents over those of its own",
        least=ratio,
        median=ratio,
        at_most=0.0,
    )


def _networks() -> dict[str, ExperimentConfig]:
    """What kernels are not told of: frequencies of heads and layers, and MLA's two parts."""
    (plain,) = small.configs
    per_head = ((Rope(base=10.0), Rope(base=1e4)), Rope(base=100.0))
    eight = change(plain, model=dict(heads(8), num_kv_heads=4, rotary=per_head))
    latent = change(
        plain,
        model=dict(
            num_kv_heads=2, head_dim=24, mla=mla.small, rotary=per_head[1], align_query_key=False
        ),
    )
    return {"frequencies by head and layer": eight, "latent attention": latent}


def _network(name: str, config: ExperimentConfig, length: int) -> Result:
    """The gradient of a loss through two layers."""
    config = change(config, data=dict(context_length=length, batch_size=2))
    params = jax.jit(functools.partial(transformer.init, config.model))(0)
    table = position_table(config.model, length)
    batch: dict[str, Any] = random_batch(config)
    num_targets = jnp.float32(batch["loss_mask"].size)

    def gradient(**changes: Any) -> np.ndarray:
        model = dataclasses.replace(config.model, **changes)
        function = jax.jit(jax.grad(lambda p: loss_fn(p, model, table, batch, num_targets)))
        leaves = jax.tree.leaves(function(params))
        return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves])

    with jax.default_matmul_precision("highest"):
        exact = gradient(compute_dtype="float32", attention="xla")
    found, plain = (
        gradient(compute_dtype="bfloat16", attention=kernel) for kernel in ("auto", "xla")
    )
    (its,), (own,) = errors([found], [exact]), errors([plain], [exact])
    return Result(
        name=f"{name}: gradient of two layers",
        ratio=OF,
        least=its / own,
        median=its / own,
        at_most=FACTOR,
        measured={"its error": its, "of bfloat16": own},
    )


def _is_cudnn(rows: int, length: int) -> bool:
    return kernels.choose(rows, length, 128, 128, jnp.bfloat16).name == "cudnn"


def _cost_of_masks(length: int, rows: int, setting: Setting) -> Result:
    """What documents and a window that may be traced cost: cuDNN reads a mask for them."""
    case = Case(T=length, N=16, K=16, H=128, U=128)
    inputs = _inputs(case, rows)
    chosen = kernels.choose(rows, length, case.H, case.U, jnp.bfloat16)
    plain = functools.partial(
        jax.nn.dot_product_attention,
        scale=1.0,
        is_causal=True,
        implementation="cudnn" if chosen.name == "cudnn" else "xla",
    )

    def forward_and_backward(attend: Callable) -> Callable[[], Any]:
        def total(q_BTNH, k_BSKH, v_BSKU):
            return jnp.sum(attend(q_BTNH, k_BSKH, v_BSKU).astype(jnp.float32) ** 2)

        gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
        return lambda: gradient(inputs["q_BTNH"], inputs["k_BSKH"], inputs["v_BSKU"])

    def masked(q_BTNH, k_BSKH, v_BSKU):
        return chosen.attend(q_BTNH, k_BSKH, v_BSKU, inputs["ids_BT"], inputs["window"])

    seconds = alternate(
        {"documents": forward_and_backward(masked), "causal": forward_and_backward(plain)},
        setting.rounds,
    )
    return Result.of_seconds(
        f"{chosen.name} on rows of {length:,} tokens",
        "time with documents and windows over time of causal attention alone",
        seconds["documents"],
        seconds["causal"],
        measured={f"ms, {name}": 1e3 * min(taken) for name, taken in seconds.items()},
    )
