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


def over_tokens(x_BT: jax.Array) -> jax.Array:
    """Says where an activation `[B, T, ...]` lies; nothing where there is one device."""
    return _laid_out(x_BT, TOKENS)


def over_vocab(embedding_VD: jax.Array) -> jax.Array:
    """Gathers the features of an embedding before ids are looked up in it, or logits made of it.

    A look-up by ids that are split over `fsdp`, in features that are split over it too, XLA would
    do by copying the whole activation to every device.
    """
    return _laid_out(embedding_VD, PartitionSpec(RULES["vocab"]))


def platform() -> str:
    """What the program being traced is for, as JAX calls it, under the mesh that is set."""
    device = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    # Also of a chip that is only compiled for; jax 0.7's devices have none.
    return getattr(device, "platform", jax.default_backend())


def on_one_cpu() -> bool:
    """Whether the program being traced is for one CPU device."""
    return jax.sharding.get_abstract_mesh().size <= 1 and platform() == "cpu"


def _laid_out(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    if jax.sharding.get_abstract_mesh().size <= 1:  # 0 where no mesh is set
        return x
    return jax.lax.with_sharding_constraint(x, spec)
