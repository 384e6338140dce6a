"""Compiled programs on the disk: found again, and removed at a start if they are damaged."""

import os
import subprocess
import sys

import pytest

from tests.damage import flip

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from ropewalk.experiment.compiled import keep_programs
keep_programs()
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(np.arange(100.0))))
print("/jax/compilation_cache/cache_hits" in compiled)
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_unless_a_bit_changed(tmp_path):
    def run() -> list[str]:
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert not done.stderr
        return done.stdout.splitlines()

    value, hit, folder = run()
    assert (hit, os.path.dirname(folder)) == ("False", str(tmp_path / "ropewalk"))
    assert run() == [value, "True", folder]
    for path in (tmp_path / "ropewalk").rglob("jit__lambda*-cache"):
        flip(path)
    assert run() == [value, "False", folder]
