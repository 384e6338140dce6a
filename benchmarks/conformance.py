"""Attention by the device's kernel beside plain attention in float32, on packed rows."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import alternate, describe, random_batch
from configs import mla, small
from configs.changes import change, heads
from experiment.config import ExperimentConfig
from model import kernels, transformer
from model.config import NO_WINDOW
from model.kernels import flash, xla
from model.rotary.rope import Rope
from training.step import loss_fn

FACTOR = 2.0  # the goal: another order of sums may double bfloat16's own error
RATIO = "its error in float32's size over that of plain bfloat16"


class Case(NamedTuple):
    """Heads and masks.

    Attributes:
      T, N, K, H, U: tokens, query heads, key heads, width of a key and of a value.
      window: number of tokens that a query attends to; None for all.
      members: size of a leading axis, with one window per member as in a sweep; 0 for no axis.
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
    """Yield errors of outputs and gradients over bfloat16's own, then the cost of masks."""
    dry_on_cpu = setting.dry and jax.default_backend() == "cpu"
    if dry_on_cpu:
        flash.INTERPRET = True
        yield "flash attention by Pallas' interpreter"
    attend, partial = flash.attention if dry_on_cpu else None, functools.partial
    parts: dict[str, Callable[[], Iterator[Result | str]]] = {}
    for name, case in CASES.items():
        if setting.dry:
            case = case._replace(T=case.T // 8 - 1 + case.T % 2, window=case.window and 16)
        parts[name] = partial(_measure_case, name, case, attend)
    for name, config in _configs().items():
        parts[name] = partial(_measure_model, name, config, 64 if setting.dry else 1024)
    for length, rows in ((4096, 4), (32_768, 1)):
        if setting.dry or kernels.choose(length, 128, 128, jnp.bfloat16).name == "flash":
            length = 64 if setting.dry else length
            part = partial(_measure_mask_cost, length, rows, setting.rounds)
            parts[f"{rows} rows of {length:,} tokens"] = part
    for name, part in parts.items():
        if not setting.has_time(20):
            yield f"{name}: no time was left"
            continue
        try:
            yield from part()
        except Exception as error:  # of a compiler or a library: the other parts still run
            yield f"{name}: failed, {describe(error)}"
            yield Result.from_ratio(name, RATIO, math.nan, at_most=FACTOR)


def make_inputs(case: Case, B: int = 2) -> dict[str, Any]:
    """Return scaled queries, keys, values, document ids, windows and a weight of every output."""
    random = np.random.default_rng(0)
    leading = (case.members,) if case.members else ()

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=(*leading, *shape)), jnp.bfloat16)

    windows = [case.window or NO_WINDOW, case.T // 8, case.T // 3, 1]
    return {
        "q_BTNH": normal(B, case.T, case.N, case.H) / np.sqrt(case.H).astype(jnp.bfloat16),
        "k_BSKH": normal(B, case.T, case.K, case.H),
        "v_BSKU": normal(B, case.T, case.K, case.U),
        "weights_BTNU": normal(B, case.T, case.N, case.U),
        "window": np.array(windows[: case.members] if case.members else windows[0], np.int32),
        "ids_BT": np.sort(random.integers(1, 6, size=(B, case.T)), axis=1).astype(np.int32),
    }


def differentiate(attend: Callable, case: Case, inputs: dict[str, Any]) -> list[np.ndarray]:
    """Return, in float32, the output and the gradients of q, k and v under a weighted sum."""

    def call(q_BTNH, k_BSKH, v_BSKU, weights_BTNU, window):
        def weighted_sum(q_BTNH, k_BSKH, v_BSKU):
            out_BTNU = attend(q_BTNH, k_BSKH, v_BSKU, inputs["ids_BT"], window)
            return jnp.sum(out_BTNU.astype(jnp.float32) * weights_BTNU), out_BTNU

        gradient = jax.grad(weighted_sum, argnums=(0, 1, 2), has_aux=True)
        gradients, out_BTNU = gradient(q_BTNH, k_BSKH, v_BSKU)
        return out_BTNU, *gradients

    arguments = [inputs[x] for x in ("q_BTNH", "k_BSKH", "v_BSKU", "weights_BTNU", "window")]
    arrays = jax.jit(jax.vmap(call) if case.members else call)(*arguments)
    return [np.asarray(x, np.float32) for x in arrays]


def relative_errors(arrays: list[np.ndarray], exact: list[np.ndarray]) -> list[float]:
    """Return the norm of each array's error over the norm of the exact array."""
    pairs = zip(arrays, exact, strict=True)
    return [float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs]


def _measure_case(name: str, case: Case, attend: Callable | None) -> Iterator[Result | str]:
    """Yield the results of `attend`, by default the device's kernel for such rows."""
    kernel = kernels.choose(case.T, case.H, case.U, jnp.bfloat16)
    if attend is None:
        yield f"{name}: {kernel.name}" + f" ({kernel.why})" * bool(kernel.why)
    attend = attend or kernel.attend
    inputs = make_inputs(case)
    with jax.default_matmul_precision("highest"):
        exact = differentiate(xla.reference, case, inputs)
    plain = relative_errors(differentiate(xla.attention, case, inputs), exact)
    errors = relative_errors(differentiate(attend, case, inputs), exact)
    for label, part in (("outputs", slice(0, 1)), ("gradients", slice(1, 4))):
        yield _error_result(f"{name}: {label}", max(errors[part]), max(plain[part]))
    yield measure_leak(name, attend, case, inputs)


def _error_result(name: str, error: float, plain: float) -> Result:
    measured = {"its error": error, "of bfloat16": plain}
    return Result.from_ratio(name, RATIO, error / plain, at_most=FACTOR, measured=measured)


def measure_leak(name: str, attend: Callable, case: Case, inputs: dict[str, Any]) -> Result:
    """Return the gradient that the last document sends to keys and values of other documents."""
    last_BT = inputs["ids_BT"] == inputs["ids_BT"].max(axis=1, keepdims=True)
    weights = jnp.where(last_BT[..., None, None], inputs["weights_BTNU"], 0)
    _, _, *gradients = differentiate(attend, case, {**inputs, "weights_BTNU": weights})
    leak = max(float(np.abs(np.where(last_BT[..., None, None], 0, x)).max()) for x in gradients)
    return Result.from_ratio(
        f"{name}: across documents",
        "largest gradient of keys and values of other documents over those of its own",
        leak / max(float(np.abs(x).max()) for x in gradients),
        at_most=0.0,
    )


def _configs() -> dict[str, ExperimentConfig]:
    """Return models whose parts kernels do not know: frequencies per head and layer, and MLA."""
    (plain,) = small.configs
    per_head = ((Rope(base=10.0), Rope(base=1e4)), Rope(base=100.0))
    eight = change(plain, model=dict(heads(8), num_kv_heads=4, rotary=per_head))
    sizes = dict(num_kv_heads=2, head_dim=24, mla=mla.small)
    latent = change(plain, model=dict(**sizes, rotary=per_head[1], align_query_key=False))
    return {"frequencies by head and layer": eight, "latent attention": latent}


def _measure_model(name: str, config: ExperimentConfig, length: int) -> Iterator[Result]:
    """Yield the error of the gradient of a loss through two layers."""
    config = change(config, data=dict(context_length=length, batch_size=2))
    params = jax.jit(functools.partial(transformer.init, config.model))(0)
    table = config.model.position_table(length)
    batch: dict[str, Any] = random_batch(config)
    num_targets = jnp.float32(batch["loss_mask"].size)

    def gradient(**changes: Any) -> np.ndarray:
        model = dataclasses.replace(config.model, **changes)
        function = jax.jit(jax.grad(lambda p: loss_fn(p, model, table, batch, num_targets)))
        leaves = jax.tree.leaves(function(params))
        return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves])

    with jax.default_matmul_precision("highest"):
        exact = gradient(compute_dtype="float32", attention="xla")
    gradients = [gradient(compute_dtype="bfloat16", attention=kernel) for kernel in ("auto", "xla")]
    yield _error_result(
        f"{name}: gradient of two layers", *relative_errors(gradients, [exact, exact])
    )


def _measure_mask_cost(length: int, rows: int, rounds: int) -> Iterator[Result]:
    """Yield the time with documents and a traced window, over cuDNN's time without them."""
    case = Case(T=length, N=16, K=16, H=128, U=128)
    inputs = make_inputs(case, rows)
    kernel = kernels.choose(length, case.H, case.U, jnp.bfloat16)
    implementation = "cudnn" if kernel.name == "flash" else "xla"

    def causal(*qkv):
        return jax.nn.dot_product_attention(
            *qkv, scale=1.0, is_causal=True, implementation=implementation
        )

    def masked(*qkv):
        return kernel.attend(*qkv, inputs["ids_BT"], inputs["window"])

    def forward_and_backward(attend: Callable) -> Callable[[], Any]:
        def sum_squares(*qkv):
            return jnp.sum(attend(*qkv).astype(jnp.float32) ** 2)

        gradient = jax.jit(jax.grad(sum_squares, argnums=(0, 1, 2)))
        return lambda: gradient(inputs["q_BTNH"], inputs["k_BSKH"], inputs["v_BSKU"])

    functions = {"documents": forward_and_backward(masked), "causal": forward_and_backward(causal)}
    yield Result.from_seconds(
        f"{kernel.name} on rows of {length:,} tokens",
        "time with documents and windows over time of cuDNN's causal attention",
        alternate(functions, rounds),
    )
