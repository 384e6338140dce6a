"""The learning rate schedule."""

import jax
import jax.numpy as jnp

from ropewalk.experiment.config import TrainConfig


def learning_rate_fraction(config: TrainConfig, step: jax.Array | int) -> jax.Array:
    """Return the learning rate of update number `step` (from 0) as a fraction of the peak."""
    step = jnp.asarray(step, jnp.float32)
    if config.schedule == "cosine":
        decay_steps = max(1, config.num_steps - config.warmup_steps)
        progress = jnp.clip((step - config.warmup_steps) / decay_steps, 0, 1)
        cosine = 0.5 * (1 + jnp.cos(jnp.pi * progress))
        fraction = config.final_fraction + (1 - config.final_fraction) * cosine
    elif config.schedule == "wsd":
        # The last update, number num_steps - 1, has the final fraction.
        decay_steps = max(1.0, config.decay_fraction * config.num_steps)
        progress = jnp.clip(1 - (config.num_steps - 1 - step) / decay_steps, 0, 1)
        fraction = 1 - (1 - config.final_fraction) * progress
    else:
        fraction = jnp.ones(())
    warmup = (step + 1) / (config.warmup_steps + 1)
    return fraction * jnp.minimum(1.0, warmup)
