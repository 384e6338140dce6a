"""Choose the kernel that computes attention, and map it over devices."""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from model import axes
from model.axes import HEADS, TOKENS
from model.config import Architecture
from model.kernels import blocks, cudnn, ring, xla


class Choice(NamedTuple):
    """A kernel for some shapes.

    Attributes:
      name: "splash", "cudnn", "ring" or "xla".
      attend: function of q, k, v, segment ids, and window, on the shards of one device.
      platform: JAX's name of the platform that it was chosen for.
      why: reason that the platform's fast kernel does not apply; empty if it does.
    """

    name: str
    attend: Callable
    platform: str
    why: str = ""

    def describe(self) -> str:
        """Describe the kernel in one line, with the reason that a faster one does not apply."""
        return f"attention: {self.name}" + (f" ({self.why})" if self.why else "")


def choose_for_model(config: Architecture, batch_size: int, context_length: int) -> Choice:
    """Choose the kernel of a model, under the current mesh.

    Args:
      config: heads, dtype, and `attention` are read.
      batch_size: rows of a microbatch, over all devices.
      context_length: tokens of a row.
    """
    if config.masked_distances is not None:
        return Choice("reference", xla.reference, axes.platform(), "model.masked_distances")
    H = config.head_dim
    U = H if config.mla is None else config.mla.v_head_dim
    B, dtype = _rows_of_a_device(batch_size), config.compute_dtype
    return choose(B, context_length, H, U, dtype, config.attention)


def choose(
    B: int,
    T: int,
    H: int,
    U: int,
    dtype: jax.typing.DTypeLike,
    kernel: Literal["auto", "xla"] = "auto",
) -> Choice:
    """Choose the kernel for rows `[B, T]` of one device, under the current mesh.

    Args:
      B, T: rows and tokens of a device; T counts the full row where `sequence` splits it.
      H, U: width of a head's keys and of its values.
      dtype: dtype of the inputs.
      kernel: "xla" for plain XLA on any platform.
    """
    mesh = jax.sharding.get_abstract_mesh()
    platform = axes.platform()
    num_devices = mesh.shape.get("sequence", 1)
    on_tpu, on_gpu = platform == "tpu", platform in ("gpu", "cuda")
    if kernel == "xla":
        why = "model.attention=xla"
    elif on_tpu:
        why = _splash_cannot(T, num_devices)
    elif on_gpu and num_devices > 1:
        why = "ring attention on GPUs uses XLA's kernel"
    else:
        why = _cudnn_cannot(B, T, H, U, dtype) if on_gpu else ""
    if on_tpu:
        from model.kernels import splash  # Pallas takes a while to import
    if num_devices > 1:
        parts = splash.PARTS if on_tpu and not why else blocks.PARTS
        attend = functools.partial(ring.attention, parts=parts, axis="sequence")
        return Choice("ring", attend, platform, why)
    if on_tpu and not why:
        return Choice("splash", splash.attention, platform)
    if on_gpu and not why:
        return Choice("cudnn", cudnn.attention, platform)
    return Choice("xla", xla.attention, platform, why)


def _splash_cannot(T: int, num_devices: int) -> str:
    from model.kernels import splash

    if -(-T // num_devices) <= splash.MAX_LENGTH:
        return ""
    return (
        f"splash attention takes up to {splash.MAX_LENGTH} tokens of a row on a device; "
        f"split rows: mesh.sequence={-(-T // splash.MAX_LENGTH)}"
    )


def _cudnn_cannot(B: int, T: int, H: int, U: int, dtype) -> str:
    if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
        return f"cuDNN takes bfloat16, not {jnp.dtype(dtype)}"
    if H % 8 or H > 256 or U > H:
        return f"cuDNN takes heads of a multiple of 8 up to 256, values no wider, not {H} and {U}"
    if B * T * T > cudnn.MAX_MASK:
        return f"cuDNN's mask over {B} rows of {T} tokens has {B * T * T} entries"
    return ""


def attention(
    q_BTNH: jax.Array,
    k_BSKH: jax.Array,
    v_BSKU: jax.Array,
    *,
    segment_ids_BT: jax.Array,
    window: jax.typing.ArrayLike,
    kernel: Literal["auto", "xla"] = "auto",
) -> jax.Array:
    """Compute causal grouped-query attention within documents.

    Query t attends to key s iff s <= t, both lie in the same segment, and t - s < window. Softmax
    is float32; products are in the inputs' dtype.

    Args:
      q_BTNH: rotated and scaled queries.
      k_BSKH: rotated keys, S = T.
      v_BSKU: values; their width may differ from the keys' (MLA).
      segment_ids_BT: int32, document of each token.
      window: int32 scalar, tokens that a query attends to, itself included; may be traced.
      kernel: see `choose`.

    Returns:
      `[B, T, N, U]` in the dtype of `v_BSKU`.
    """
    H, U = q_BTNH.shape[3], v_BSKU.shape[3]
    B = _rows_of_a_device(q_BTNH.shape[0])
    attend = map_devices(choose(B, q_BTNH.shape[1], H, U, q_BTNH.dtype, kernel))
    return attend(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, jnp.asarray(window, jnp.int32))


def _rows_of_a_device(batch_size: int) -> int:
    mesh = jax.sharding.get_abstract_mesh()
    return -(-batch_size // (mesh.shape.get("data", 1) * mesh.shape.get("fsdp", 1)))


def map_devices(choice: Choice) -> Callable:
    """Return `choice.attend` on full arrays, mapped over the devices of the current mesh."""
    if jax.sharding.get_abstract_mesh().size <= 1:  # 0 where no mesh is set
        return choice.attend
    return jax.shard_map(
        choice.attend,
        in_specs=(HEADS, HEADS, HEADS, TOKENS, PartitionSpec()),
        out_specs=HEADS,
        check_vma=False,
    )
