"""Compiled programs on the disk: found again, verified, and each processor's apart."""

import os
import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from experiment import compiled
from tests.programs import DAMAGES, damage

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from experiment.compiled import keep_programs
keep_programs()
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(np.arange(100.0))))
print("/jax/compilation_cache/cache_hits" in compiled, jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture
def run(tmp_path):
    """Run PROGRAM in a process with its own home; return what it printed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def run(warning: str = "", **more: str) -> tuple[str, str, str]:
        command = [sys.executable, "-c", PROGRAM]
        env = environment | more
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert warning in done.stderr and done.stderr.count("\n") == bool(warning)
        value, rest = done.stdout.splitlines()
        return value, *rest.split(" ", 1)

    return run


@pytest.fixture
def folder(tmp_path):
    """The folder where this process now keeps its programs."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compiled.keep_programs()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compiled.keep_programs()


def answers() -> list[float]:
    """Run two programs with the same arguments, each read from the disk or compiled."""
    x = jnp.arange(100.0)
    return [float(jax.jit(lambda x, f=f: jnp.sum(f(x) ** 2))(x)) for f in (jnp.sin, jnp.cos)]


def test_a_second_process_compiles_nothing(run, tmp_path):
    value, hit, folder = run()
    assert (hit, os.path.dirname(folder)) == ("False", str(tmp_path / "ropewalk"))
    assert run() == (value, "True", folder)


@pytest.mark.parametrize("kind", DAMAGES)
def test_no_damage_changes_a_number(kind, folder, capsys):
    expected = answers()
    pristine = {path: path.read_bytes() for path in folder.glob("jit__lambda*-cache")}
    assert len(pristine) == 2
    for seed in range(10):
        damage(kind, sorted(pristine), random.Random(seed))
        assert answers() == expected
        assert 1 <= capsys.readouterr().err.count("damaged compiled program") <= 2
        for path, content in pristine.items():
            path.write_bytes(content)
    assert answers() == expected and not capsys.readouterr().err


@pytest.mark.long
def test_programs_that_jax_stored_by_itself_are_not_read(run, tmp_path):
    cache = str(tmp_path / "own")
    unverified = PROGRAM.replace("keep_programs()\n", "")
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", unverified], env=environment, check=True)
    assert list((tmp_path / "own").glob("jit__lambda*-cache"))
    assert run(JAX_COMPILATION_CACHE_DIR=cache)[1:] == ("False", cache)
    assert run(JAX_COMPILATION_CACHE_DIR=cache)[1:] == ("True", cache)
    assert run(JAX_COMPILATION_CACHE_DIR="")[1:] == ("False", "")
    assert not (tmp_path / "ropewalk").exists()


def test_nothing_is_kept_where_nothing_can_be_written(run, tmp_path):
    (tmp_path / "file").touch()
    file = str(tmp_path / "file")
    assert run(XDG_CACHE_HOME=file)[1:] == ("False", "None")
    output = run("programs are not kept", JAX_COMPILATION_CACHE_DIR=file)
    assert output[1:] == ("False", "None")
