"""Simulations run for longer than they compile: compile them as users do."""

import jax
import pytest


@pytest.fixture(autouse=True)
def optimized():
    """Compile with all optimizations."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
