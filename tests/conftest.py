"""Fixtures that tests share: one prepared tiny data set, and processes that start quickly."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer import train as train_tokenizer
from ropewalk.experiment.compiled import keep_programs
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.sweep import train_plan
from ropewalk.utils.locks import lock
from tests.models import make_plan, tiny_config
from tests.offline import sitecustomize  # noqa: F401 - it blocks connections

ROOT = Path(__file__).parent.parent
UNOPTIMIZED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# Processes that tests start import `sitecustomize` too.
OFFLINE = [str(Path(__file__).with_name("offline")), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, OFFLINE))


def pytest_sessionfinish(session):
    """Fail if all tests were skipped, as `make test-slurm` without SLURM, and say why."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and not session.exitstatus and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        reasons = sorted({str(report.longrepr[2]) for report in skipped})
        reporter.write_line(f"\nno test ran: {'; '.join(reasons)}", red=True)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id) -> Path:
    """One folder for all workers of this test session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def tiny_data(shared_folder) -> list[str]:
    """Overrides that point `tiny` at data prepared once a session."""
    return [f"data.prepared_root={shared_folder / 'data'}"]


@pytest.fixture(scope="session")
def trained_run(shared_folder, tiny_data) -> Path:
    """A run of `tiny` with two saved steps, shared by all workers: copy it to change it."""
    path = shared_folder / "trained" / "run"
    path.parent.mkdir(exist_ok=True)
    with lock(shared_folder / "trained.lock"):
        if not (shared_folder / "trained" / "done").exists():
            changes = [*tiny_data, "train.num_steps=2", "train.save_every=1", "evals.tasks=[kv]"]
            config = tiny_config(*changes)
            assert train_plan(
                make_plan([config], [RunDirectory(path)], overrides=changes), command="test"
            )
            (shared_folder / "trained" / "done").touch()
    return path


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """A tokenizer of 640 pieces for models that read no words."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train_tokenizer([" ".join(f"{7919 * i % 2**20:x}" for i in range(4000))], path, 640)
    return Tokenizer(path)


@pytest.fixture(scope="session")
def environment(shared_folder) -> dict[str, str]:
    """Variables of subprocesses, which compile as the tests do and keep what they compiled."""
    return {
        **os.environ,
        UNOPTIMIZED: os.environ.get(UNOPTIMIZED, "1"),
        "JAX_COMPILATION_CACHE_DIR": str(shared_folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="session", autouse=True)
def shared_programs(environment):
    """Share compiled programs between workers and the processes they start.

    Most tests spend most of their time compiling; `make test-all` sets UNOPTIMIZED to 0.
    """
    jax.config.update("jax_disable_most_optimizations", os.environ.get(UNOPTIMIZED, "1") == "1")
    jax.config.update("jax_compilation_cache_dir", environment["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    keep_programs()  # under the names that the commands give them


@pytest.fixture
def copied_run(trained_run, tmp_path, monkeypatch, shared_folder) -> Path:
    """A copy of a run, `run` in the current folder; the tests' prepared data are in runs/data."""
    (tmp_path / "runs").mkdir()
    (shared_folder / "data").mkdir(exist_ok=True)
    (tmp_path / "runs" / "data").symlink_to(shared_folder / "data")
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(trained_run, tmp_path / "run")


@pytest.fixture
def tree(tmp_path) -> Path:
    """The repository with `runs` of its own: what documents tell to type is typed there."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name != "runs" and not path.name.startswith(".venv"):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def run_script(environment):
    """Runs `python SCRIPT ...` in a folder, by default the repository; returns the process.

    Keywords are further variables of its environment.
    """

    def run(
        *arguments: object, check: bool = True, cwd: Path = ROOT, **variables: object
    ) -> subprocess.CompletedProcess[str]:
        env = environment | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=cwd, env=env,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{arguments} exited {done.returncode}\n{done.stderr}")
        return done

    return run
