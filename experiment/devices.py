"""The platform that JAX computes on."""

import jax

from ropewalk.utils.messages import one_line


class PlatformError(ValueError):
    """JAX cannot use the platform that it was told to use; it says nothing about any data."""


def check_platform() -> None:
    """Make JAX find its devices, as its first computation would.

    Several processes must have found each other before (`experiment.distributed.initialize`).

    Raises:
      PlatformError: if JAX cannot use the platform.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise PlatformError(
            "JAX's default is 64 bits here (JAX_ENABLE_X64 or jax_enable_x64), and models need 32; "
            "call jax.config.update('jax_enable_x64', False)"
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # no text in the latter: there is no GPU
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        # JAX's own advice, at the end, is for other causes.
        reason = str(error).partition(" (set JAX_PLATFORMS")[0].partition(" (you may need")[0]
        reason = reason.removeprefix(f"Unable to initialize backend '{platforms}': ").rstrip(".")
        raise PlatformError(
            f"JAX cannot use the platform {platforms or 'of this machine'} "
            f"({one_line(reason or 'no such device', 120)}); set JAX_PLATFORMS=cpu, or unset it so "
            "that JAX chooses"
        ) from error
