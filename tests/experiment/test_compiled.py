"""Programs kept on the disk: found again, each processor's apart, and never half of one."""

import os
import subprocess
import sys
import time

import pytest

from experiment import compiled

PROGRAM = """
import jax, jax.numpy as jnp
from experiment.compiled import keep_programs
keep_programs()
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.arange(100.0))))
print("/jax/compilation_cache/cache_hits" in compiled, jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture
def run(tmp_path):
    """A process of its own, with a home of its own; what it printed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def run(**more: str) -> tuple[str, str, str]:
        command = [sys.executable, "-c", PROGRAM]
        given = environment | more
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        value, rest = done.stdout.splitlines()
        return value, *rest.split(" ", 1)

    return run


def test_a_second_process_compiles_nothing(run, tmp_path):
    value, found, folder = run()
    assert (found, os.path.dirname(folder)) == ("False", str(tmp_path / "ropewalk"))
    assert run() == (value, "True", folder)


def test_half_a_program_is_made_anew(run, tmp_path):
    """JAX itself warns at every start, and never replaces it."""
    value, *_ = run()
    programs = list(tmp_path.rglob("*-cache"))
    assert programs
    for path in programs:
        path.write_bytes(path.read_bytes()[:-10])
    assert run()[:2] == (value, "False")
    assert run()[:2] == (value, "True")


def test_what_the_user_said_stays(run, tmp_path):
    own = str(tmp_path / "own")
    assert run(JAX_COMPILATION_CACHE_DIR=own)[2] == own
    assert run(JAX_COMPILATION_CACHE_DIR="")[2] == ""
    assert not (tmp_path / "ropewalk").exists()


def test_nothing_is_kept_where_nothing_can_be_written(run, tmp_path):
    (tmp_path / "file").touch()
    assert run(XDG_CACHE_HOME=str(tmp_path / "file"))[1:] == ("False", "None")


def test_what_was_long_unused_goes(tmp_path):
    old, new = tmp_path / "old-cache", tmp_path / "new-cache"
    for path, days in ((old, 31), (new, 29)):
        path.touch()
        os.utime(path, (time.time() - days * 86_400,) * 2)
    (tmp_path / "checked").touch()
    compiled._clean(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checked", "new-cache"]
