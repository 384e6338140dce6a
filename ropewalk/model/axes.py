"""Logical axes, mesh axes, and the layout of activations."""

import re

import jax
from jax.sharding import PartitionSpec

MESH_AXES = ("sweep", "data", "fsdp", "sequence", "tensor")

# GPUs without bfloat16, of compute capability below 8.0, in device kinds.
BEFORE_AMPERE = re.compile(r"Tesla|Quadro|TITAN|GTX|RTX 20|\bT4\b|[PV]100")

# Logical axes of parameters.
RULES: dict[str | None, str | None] = {
    "vocab": "tensor",
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "layers": None,
    None: None,
}

# A batch, and every activation that follows it: `[B, T, ...]`, and `[B, T, N, H]`.
TOKENS = PartitionSpec(("data", "fsdp"), "sequence")
HEADS = PartitionSpec(*TOKENS, "tensor")
# `tensor` splits the features of a block's matrix products. Between those products it splits tokens
# instead, so that each device stores a part of the residual stream and its norms (2205.05198).
STREAM = PartitionSpec(TOKENS[0], (TOKENS[1], "tensor"))


def shard_tokens(x_BT: jax.Array) -> jax.Array:
    """Constrain the layout of an activation `[B, T, ...]`; a no-op on one device."""
    return _constrain(x_BT, TOKENS)


def shard_stream(x_BTD: jax.Array) -> jax.Array:
    """Constrain the layout of the residual stream."""
    return _constrain(x_BTD, STREAM if _stream_is_split(x_BTD) else TOKENS)


def gather_stream(x_BTD: jax.Array) -> jax.Array:
    """Gather the tokens that `tensor` splits, before a matrix product; reduce-scatter gradients."""
    # State both layouts, here and below: with one of them XLA moves features between devices.
    return _constrain(_constrain(x_BTD, STREAM), TOKENS) if _stream_is_split(x_BTD) else x_BTD


def scatter_stream(x_BTD: jax.Array) -> jax.Array:
    """Sum the output of a matrix product over `tensor`, and split its tokens again."""
    return _constrain(_constrain(x_BTD, TOKENS), STREAM) if _stream_is_split(x_BTD) else x_BTD


def _stream_is_split(x_BTD: jax.Array) -> bool:
    parts = devices_along("sequence") * devices_along("tensor")
    return devices_along("tensor") > 1 and x_BTD.shape[1] % parts == 0


def gather_weight(weight: jax.Array) -> jax.Array:
    """Gather a weight to every device, once for both passes; else XLA gathers it for each product.

    Where `tensor` splits weights, and on one device, return the weight unchanged.
    """
    if not weights_are_gathered():
        return weight
    gather = jax.custom_vjp(lambda weight: _constrain(weight, PartitionSpec()))
    # The gradient needs no gather: a device needs only its part.
    gather.defvjp(lambda weight: (gather(weight), None), lambda _, g: (g,))
    return gather(weight)


def weights_are_gathered() -> bool:
    """Return whether `gather_weight` gathers anything."""
    return not on_one_device() and devices_along("tensor") == 1


def save_all_but_gathered(primitive, *_, **params) -> bool:
    """Save everything but the results of `gather_weight`: a policy of `jax.checkpoint`.

    Saved, the gathered weights of all layers would fill every device. The backward pass gathers
    them again.
    """
    equations = params["call_jaxpr"].eqns if primitive.name == "custom_vjp_call" else ()
    return not any(eqn.primitive.name == "sharding_constraint" for eqn in equations)


def platform() -> str:
    """Return JAX's name of the platform that the traced program is for, under the current mesh."""
    return getattr(_abstract_device(), "platform", jax.default_backend())


def device_kind() -> str:
    """Return the device kind that the traced program is for; empty if the mesh does not say."""
    return getattr(_abstract_device(), "device_kind", "")


def products_dtype(compute_dtype: str) -> str:
    """Return the dtype of matrix products: for "auto", bfloat16 on accelerators that have it."""
    if compute_dtype != "auto":
        return compute_dtype
    kind = device_kind() or jax.devices()[0].device_kind
    return "float32" if platform() == "cpu" or BEFORE_AMPERE.search(kind) else "bfloat16"


def _abstract_device():
    # It also describes a chip that is only compiled for. jax 0.7 does not have it.
    return getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)


def devices_along(axis: str) -> int:
    """Return the number of devices along an axis of the current mesh."""
    return jax.sharding.get_abstract_mesh().shape.get(axis, 1)


def on_one_device() -> bool:
    """Return whether the traced program is for a single device."""
    return jax.sharding.get_abstract_mesh().size <= 1  # 0 where no mesh is set


def on_one_cpu() -> bool:
    """Return whether the traced program is for a single CPU device."""
    return on_one_device() and platform() == "cpu"


def _constrain(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    if on_one_device():
        return x
    return jax.lax.with_sharding_constraint(x, spec)
