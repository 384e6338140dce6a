"""Variables, encodings and texts that a user's other programs bring do not stop a command."""

import json
import os
import shutil
import subprocess
import sys

import jax
import pytest

from ropewalk.experiment import load
from ropewalk.model import transformer
from tests.conftest import ROOT


@pytest.fixture
def run(trained_run, tmp_path):
    return shutil.copytree(trained_run, tmp_path / "run")


@pytest.mark.long
def test_variables_of_other_programs(run, run_script):
    variables = {
        "MPLBACKEND": "module://matplotlib_of_another.python",
        "JAX_ENABLE_X64": "1",
        "JAX_NUMPY_RANK_PROMOTION": "raise",
        "PYTHONIOENCODING": "ascii",
    }
    options = ("--tasks", "kv", "--lengths", "64", "--documents", "8")
    output = run_script("evaluate.py", run, *options, **variables).stdout
    assert output.isascii() and "kv" in output
    show = "-m", "ropewalk", "theory", "show", "rope(base=10)", "--plot", run / "figure.png"
    run_script(*show, **variables)
    assert (run / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_commands_have_their_docstrings_where_python_removes_them(run_script):
    """PYTHONOPTIMIZE=2 and -OO: help, fields of the config, and lists of tasks are docstrings."""
    usage = run_script("-OO", "-m", "ropewalk.theory", "--help").stdout
    assert "bound" in usage and "None" not in usage
    for command, text in (("train.py", "base_30m"), ("evaluate.py", "lagcopy")):
        assert text in run_script(command, "--help", PYTHONOPTIMIZE="2").stdout


DRAW = """
import sys
sys.argv[0] = "train.py"  # a command, and not a program of the user
import ropewalk.utils.environment, jax, warnings
print(jax.random.normal(jax.random.key(3), 5).tolist())
warnings.warn("rows of 9 tokens")
"""


@pytest.mark.slow
def test_initial_parameters_depend_on_no_variable(run_script):
    variables = {"JAX_DEFAULT_PRNG_IMPL": "rbg", "JAX_RANDOM_SEED_OFFSET": "7"}
    drawn = run_script("-c", DRAW, JAX_THREEFRY_PARTITIONABLE="0", **variables)
    assert json.loads(drawn.stdout) == jax.random.normal(jax.random.key(3), (5,)).tolist()
    assert drawn.stderr == "warning: rows of 9 tokens\n"  # no line of code


def test_a_closed_pipe_is_a_line():
    """A reader such as `head` ends before the output does."""
    code = "from ropewalk.utils.command_line import exit_with; exit_with(lambda: print('a' * 9**6))"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"-c: error: Broken pipe\n")


@pytest.mark.slow
def test_a_platform_that_is_missing(run, run_script):
    # CPU first in the list is a device that exists; the platforms below are not installed.
    command = "evaluate.py", run, "--tasks", "kv"
    done = run_script(*command, check=False, JAX_PLATFORMS="cuda")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "set JAX_PLATFORMS=cpu" in done.stderr.splitlines()[-1]


def test_64_bits_of_a_notebook_are_refused(trained_run):
    """They would make float64 of float32 parameters, also in shapes that stay in memory."""
    transformer._skeleton.cache_clear()
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(ValueError, match="jax_enable_x64"):
            load(trained_run)
    finally:
        jax.config.update("jax_enable_x64", False)
    leaves = jax.tree.leaves(transformer.abstract_params(load(trained_run).config.model))
    assert {leaf.dtype for leaf in leaves} == {jax.numpy.float32.dtype}


def test_a_lone_surrogate_is_no_text(trained_run):
    with pytest.raises(ValueError, match="not Unicode"):
        load(trained_run).logits("caf\udce9")
