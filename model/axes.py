"""One table: what lies over which axis of the mesh."""

import jax
from jax.sharding import PartitionSpec

MESH_AXES = ("sweep", "data", "fsdp", "sequence", "tensor")

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
# Between the products of a block, whose features `tensor` splits, it splits tokens instead: the
# residual stream, its norms and what is kept of them are each device's part (2205.05198).
STREAM = PartitionSpec(TOKENS[0], (TOKENS[1], "tensor"))


def over_tokens(x_BT: jax.Array) -> jax.Array:
    """Says where an activation `[B, T, ...]` lies; nothing where there is one device."""
    return _laid_out(x_BT, TOKENS)


def over_stream(x_BTD: jax.Array) -> jax.Array:
    """Says where the residual stream lies."""
    return _laid_out(x_BTD, STREAM if _stream_is_split(x_BTD) else TOKENS)


def from_stream(x_BTD: jax.Array) -> jax.Array:
    """All tokens of a stretch of the stream, for products; its gradients add up where they lie."""
    # Both layouts are said, here and below: one alone leaves XLA to move features over devices.
    return _laid_out(_laid_out(x_BTD, STREAM), TOKENS) if _stream_is_split(x_BTD) else x_BTD


def to_stream(x_BTD: jax.Array) -> jax.Array:
    """What products found, added up over `tensor` where it lies in the stream."""
    return _laid_out(_laid_out(x_BTD, TOKENS), STREAM) if _stream_is_split(x_BTD) else x_BTD


def _stream_is_split(x_BTD: jax.Array) -> bool:
    mesh = jax.sharding.get_abstract_mesh().shape
    parts = mesh.get("sequence", 1) * mesh.get("tensor", 1)
    return mesh.get("tensor", 1) > 1 and x_BTD.shape[1] % parts == 0


def whole(weight: jax.Array) -> jax.Array:
    """A weight that each device has all of, for both passes: or XLA gathers it for each product.

    Where `tensor` splits some, and where there is one device, as it is.
    """
    if not weights_are_gathered():
        return weight
    gather = jax.custom_vjp(lambda weight: _laid_out(weight, PartitionSpec()))
    # Of its gradient a device needs its part only.
    gather.defvjp(lambda weight: (gather(weight), None), lambda _, g: (g,))
    return gather(weight)


def weights_are_gathered() -> bool:
    """Whether `whole` does something."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.size > 1 and mesh.shape.get("tensor", 1) == 1


def all_but_gathered(primitive, *_, **params) -> bool:
    """A policy of `jax.checkpoint`: what `whole` gave is gathered again, not kept, going back.

    Kept it would be the weights of all layers, on every device.
    """
    inside = params["call_jaxpr"].eqns if primitive.name == "custom_vjp_call" else ()
    return not any(each.primitive.name == "sharding_constraint" for each in inside)


def platform() -> str:
    """What the program being traced is for, as JAX calls it, under the mesh that is set."""
    return getattr(_abstract_device(), "platform", jax.default_backend())


def device_kind() -> str:
    """Of what the program being traced is for; empty where the mesh does not say."""
    return getattr(_abstract_device(), "device_kind", "")


def _abstract_device():
    # Also of a chip that is only compiled for; jax 0.7's devices have none.
    return getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)


def on_one_cpu() -> bool:
    """Whether the program being traced is for one CPU device."""
    return jax.sharding.get_abstract_mesh().size <= 1 and platform() == "cpu"


def _laid_out(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    if jax.sharding.get_abstract_mesh().size <= 1:  # 0 where no mesh is set
        return x
    return jax.lax.with_sharding_constraint(x, spec)
