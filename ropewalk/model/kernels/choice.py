"""Choose the kernel that computes attention, and map it over devices."""

import functools
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from ropewalk.model import axes
from ropewalk.model.axes import HEADS, TOKENS
from ropewalk.model.config import Architecture
from ropewalk.model.kernels import blocks, ring, xla

# GPUs of compute capability 9.0, in device kinds.
HOPPER = re.compile(r"\bG?H(100|200|800|20)\b")
# GPUs below compute capability 8.0, and GPUs of another maker, in device kinds.
WITHOUT_FLASH = re.compile(rf"{axes.BEFORE_AMPERE.pattern}|AMD|gfx")


class Choice(NamedTuple):
    """A kernel for some shapes.

    Attributes:
      name: "splash", "hopper", "flash", "ring" or "xla".
      attend: function of q, k, v, segment ids, and window, on the shards of one device. Returns the
        output, `[B, T, N, U]`, and the log-sum-exp of each query's logits, float32 `[B, T, N]`.
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


def choose_for_model(config: Architecture, context_length: int) -> Choice:
    """Choose the kernel of a model for rows of `context_length` tokens, under the current mesh."""
    if config.masked_distances is not None:
        attend = functools.partial(xla.reference, masked_distances=config.masked_distances)
        return Choice("reference", attend, axes.platform(), "model.masked_distances")
    dtype = axes.products_dtype(config.compute_dtype)
    return choose(context_length, config.head_dim, config.value_dim, dtype, config.attention)


def choose(
    T: int,
    H: int,
    U: int,
    dtype: jax.typing.DTypeLike,
    kernel: Literal["auto", "xla"] = "auto",
) -> Choice:
    """Choose the kernel of one device, under the current mesh.

    Args:
      T: tokens of a row, also where `sequence` splits it.
      H, U: width of a head's keys and of its values.
      dtype: dtype of the inputs.
      kernel: "xla" for plain XLA on any platform.
    """
    num_devices = axes.devices_along("sequence")
    platform = axes.platform()
    fast, why = None, ""
    if kernel == "xla":
        why = "model.attention=xla"
    elif platform == "tpu":
        fast, why = _splash(T, num_devices)
    elif platform in ("gpu", "cuda"):
        fast, why = _of_gpu(H, U, dtype, num_devices)
    if num_devices > 1:
        parts = fast.PARTS if fast else blocks.PARTS
        attend = functools.partial(ring.attention, parts=parts, axis="sequence")
        return Choice("ring", attend, platform, why)
    if fast:
        return Choice(fast.__name__.rpartition(".")[2], fast.attention, platform, why)
    return Choice("xla", xla.attention, platform, why)


def _splash(T: int, num_devices: int) -> tuple[Any, str]:
    """Return the module `splash`, or None and the reason that it does not apply."""
    from ropewalk.model.kernels import splash  # Pallas takes a while to import

    if -(-T // num_devices) <= splash.MAX_LENGTH:
        return splash, ""
    return None, (
        f"splash attention takes up to {splash.MAX_LENGTH} tokens of a row on a device; "
        f"split rows: mesh.sequence={-(-T // splash.MAX_LENGTH)}"
    )


def _of_gpu(H: int, U: int, dtype, num_devices: int) -> tuple[Any, str]:
    """Return `hopper` or `flash`, or None, and the reason that a faster one does not apply."""
    kind = axes.device_kind() or jax.devices()[0].device_kind
    if not HOPPER.search(kind) or num_devices > 1:
        return _flash(H, U, dtype, kind)
    try:
        from ropewalk.model.kernels import hopper
    except ImportError as error:
        flash, why = _flash(H, U, dtype, kind)
        return flash, why or f"pip install '.[tokamax]' brings a faster kernel: {error}"
    if jnp.dtype(dtype).name in hopper.DTYPES and max(H, U) <= hopper.MAX_WIDTH:
        return hopper, ""
    return _flash(H, U, dtype, kind)


def _flash(H: int, U: int, dtype, kind: str) -> tuple[Any, str]:
    """Return the module `flash`, or None and the reason that it does not apply."""
    if WITHOUT_FLASH.search(kind):
        need = "an NVIDIA GPU of compute capability 8.0 or more"
        return None, f"flash attention needs {need}, not {kind}"
    try:
        from ropewalk.model.kernels import flash
    except ImportError as error:
        return None, f"flash attention needs a newer JAX than {jax.__version__}: {error}"
    if jnp.dtype(dtype).name not in flash.DTYPES:
        return None, f"flash attention takes {', '.join(flash.DTYPES)}, not {jnp.dtype(dtype)}"
    if max(H, U) > flash.MAX_WIDTH:
        return None, f"flash attention takes heads up to {flash.MAX_WIDTH} wide, not {max(H, U)}"
    return flash, ""


def attention(config: Architecture, q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> jax.Array:
    """Compute causal grouped-query attention within documents.

    Query t attends to key s iff s <= t, both lie in the same segment, and t - s < window. Softmax
    is float32; products are in the inputs' dtype.

    Args:
      config: decides the kernel.
      q_BTNH: rotated and scaled queries.
      k_BSKH: rotated keys, S = T.
      v_BSKU: values; their width may differ from the keys' (MLA).
      segment_ids_BT: int32, document of each token.
      window: int32 scalar, tokens that a query attends to, itself included; may be traced.

    Returns:
      `[B, T, N, U]` in the dtype of `v_BSKU`.
    """
    attend = map_devices(choose_for_model(config, q_BTNH.shape[1]))
    out_BTNU, _ = attend(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)
    return out_BTNU.astype(v_BSKU.dtype)


def map_devices(choice: Choice) -> Callable:
    """Return `choice.attend` on full arrays, mapped over the devices of the current mesh.

    The reference is not mapped: a control needs no speed, and its mask needs full rows.
    """
    if axes.on_one_device() or choice.name == "reference":
        return choice.attend
    return jax.shard_map(
        choice.attend,
        in_specs=(HEADS, HEADS, HEADS, TOKENS, PartitionSpec()),
        out_specs=(HEADS, HEADS),
        check_vma=False,
    )
