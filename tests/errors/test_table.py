"""Every invalid input gets a one-line error."""

import importlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from configs import find_config
from experiment import overrides
from experiment.run import RunDirectory
from tests.conftest import ROOT
from tests.errors.table import Row, run_command
from training.loop import train
from training.plan import make_plan
from utils.messages import LONGEST

pytestmark = pytest.mark.usefixtures("unoptimized")

AREAS = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem[:5] != "test_")
TABLE = [
    pytest.param(row, id=f"{area}: {row.says}", marks=[pytest.mark.slow] * row.run)
    for area in AREAS
    for row in getattr(importlib.import_module(f"tests.errors.{area}"), "ROWS", ())
]


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory, tiny_data) -> Path:
    """A finished run of `tiny`, of two steps, both saved."""
    changes = [*tiny_data, "train.num_steps=2", "train.save_every=1", "evals.tasks=[kv]"]
    run = RunDirectory(tmp_path_factory.mktemp("trained") / "run")
    config = overrides.apply(find_config("tiny"), changes)
    assert train(make_plan([config], [run], overrides=[changes]), command="test")
    return run.path


@pytest.fixture
def folder(tmp_path, shared_folder, monkeypatch) -> Path:
    """The current directory of a row. A process that has computed cannot look for others."""
    (tmp_path / "runs").mkdir()
    (shared_folder / "data").mkdir(exist_ok=True)
    os.symlink(shared_folder / "data", tmp_path / "runs" / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax.distributed, "initialize", _alone)
    return tmp_path


def _alone(*arguments):
    raise ValueError("coordinator_address should be defined.")


@pytest.mark.parametrize("row", TABLE)
def test_one_line_says_what_is_wrong(row: Row, folder, request, capsys, monkeypatch):
    if row.run:
        shutil.copytree(request.getfixturevalue("trained_run"), folder / "run")
    for name, content in row.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    row.given(monkeypatch)
    capsys.readouterr()
    if isinstance(row.do, str):
        code = run_command(row.do, monkeypatch)
        output = capsys.readouterr().err
        program, _, message = (output.splitlines() or [""])[-1].partition(": error: ")
        assert code == row.code, output
        assert program and "Traceback" not in output and output.count("error: ") == 1
        # What is refused leaves nothing behind, where rows have their --workdir.
        assert row.code != 2 or not (folder / "new").exists()
    else:
        with pytest.raises(ValueError) as caught:
            row.do()
        message = str(caught.value)
    assert row.fits(message), message
    assert "\n" not in message and len(message) <= LONGEST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "command"),
    [
        ("cuda", "train.py tiny --workdir {new}"),
        ("nowhere", "sweep.py tiny --workdir {new} model.rotary.base=10,100"),
        ("cuda", "evaluate.py {run}"),
        ("nowhere", "generate.py {run} --prompt a"),
        ("nowhere", "-m probes {run}"),
        ("nowhere", "-m interop export {run} {new}"),
        ("nowhere", "-c 'import experiment; experiment.load(\"{run}\")'"),
    ],
)
def test_a_platform_that_jax_cannot_use(command, platform, trained_run, tmp_path, environment):
    """A process of its own: JAX looks for its platform once."""
    if platform == "cuda" and Path("/dev/nvidia0").exists():
        pytest.skip("JAX can use it")
    arguments = shlex.split(command.format(run=trained_run, new=tmp_path / "new"))
    variables = environment | {"JAX_PLATFORMS": platform}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stderr.splitlines()
    assert f"JAX cannot use the platform {platform} (" in lines[-1] and "JAX_PLATFORMS" in lines[-1]
    assert done.returncode and (len(lines) == 1 or arguments[0] == "-c")
    assert not (tmp_path / "new").exists()
