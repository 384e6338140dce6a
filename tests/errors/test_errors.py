"""Every wrong input ends in one line that names it, and leaves nothing behind.

`commands.txt` has the inputs that a command line and small text files can show. The tests below
have those that need a damaged checkpoint, a bucket, a second process or a missing package.
"""

import errno
import fcntl
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from safetensors.numpy import load_file, save_file

from ropewalk.__main__ import COMMANDS
from ropewalk.configs import find_config
from ropewalk.experiment import distributed, load
from ropewalk.experiment.config import from_dict
from ropewalk.experiment.overrides import make_sweep
from ropewalk.utils.messages import LONGEST
from tests.in_process import call, call_any

TINY = find_config("tiny")
CARD = """
name = "bases"
question = "?"
config = "tiny"
overrides = ["data.source=retrieval", "data.retrieval_tasks=[kv]", "train.schedule=wsd"]
members.ten = ["model.rotary.base=10"]
"""


@pytest.fixture
def refuse(tmp_path, copied_run):
    """Return a function that runs a command in a folder of its own and checks its error."""
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "__init__.py").touch()
    (tmp_path / "study" / "bases.toml").write_text(CARD)

    def check(command: str, expected: str) -> None:
        status, output = call_any(*shlex.split(command))
        program, _, message = (output.splitlines() or [""])[-1].partition(": error: ")
        pattern = re.escape(expected).replace("…", ".*")
        assert status == 2 and re.search(pattern, message), output
        assert program and "Traceback" not in output and output.count("error: ") == 1
        assert len(message) <= LONGEST
        assert not (tmp_path / "new").exists(), "something was left behind"

    return check


def _read_table() -> list:
    cases, files = [], {}
    lines = (Path(__file__).parent / "commands.txt").read_text(encoding="utf-8").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("file "):
            name, _, content = line.removeprefix("file ").partition(": ")
            content = content.encode().decode("unicode_escape").encode("latin1")
            files[Path(name.rstrip(":"))] = content
        elif line.startswith("gone "):
            files[Path(line.removeprefix("gone "))] = None
        elif line.startswith("$ "):
            cases.append(pytest.param(line[2:], following, files, id=line[2:90]))
            files = {}
    return cases


@pytest.mark.parametrize(("command", "expected", "files"), _read_table())
def test_one_line_names_the_error(command, expected, files, refuse):
    if not re.search(r"\brun\b", command):
        shutil.rmtree("run")
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    refuse(command, expected)


def test_a_config_cannot_name_foreign_classes():
    for name in ("os.path.join", "model.rotary.rope.np", "model.rotary.bent.Bent"):
        with pytest.raises(ValueError, match="config names"):
            from_dict({"class": name})


def test_token_ids_outside_the_vocabulary_are_refused(trained_run):
    run = load(trained_run)
    for tokens in (np.array([[0, 512]]), np.zeros((1, 3)), np.zeros(3, np.int32)):
        with pytest.raises(ValueError, match=r"ids 0 \.\.\. 512|must be a text or whole numbers"):
            run.logits(tokens)
    with pytest.raises(ValueError, match="inhomogeneous"):
        run.logits([[1, 2], [3]])


def test_a_second_trainer_of_a_run_is_refused(refuse):
    with Path("run/.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("process 7 on elsewhere\n")
        file.flush()
        refuse(
            "train.py tiny --workdir run train.num_steps=2",
            "run is being trained by process 7 on elsewhere; wait for it or stop it",
        )


def test_changed_training_data_of_another_member_is_refused(refuse):
    member, _ = make_sweep(TINY, "sweep", ["seed=0,1"]).members  # the other one is trained apart
    member.run.write_config(member.config, member.overrides, trained_on=["old"])
    command = "sweep.py tiny --workdir sweep seed=0,1 --member 1"
    refuse(command, "sweep/seed=0 was trained on other data (fingerprint old, now …")


@pytest.mark.parametrize(
    "command",
    [
        *("train.py tiny --workdir new", "evaluate.py run", "report.py run"),
        *("-m data.prepare --out new", "export run new", "import run new"),
    ],
)
def test_a_read_only_disk_is_noticed_before_any_work(command, refuse, monkeypatch):
    def fail(**_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    refuse(command, "… cannot be written to (Read-only file system); ")


@pytest.mark.parametrize(
    ("module", "command", "expected"),
    [
        ("torch", "-m tpu.benchmarks peer", "peer needs torch: run `make test-hf` once"),
        ("wandb", "train.py tiny --workdir new train.tracking=wandb", "train.tracking=wandb needs"),
        ("gcsfs", "train.py tiny --workdir gs://bucket/run", "gs://bucket/run needs gcsfs: pip"),
        ("apache_beam", "-m data.redpajama.beam --path in", "this needs apache-beam: pip install"),
    ],
)
def test_a_missing_package_is_named(module, command, expected, refuse, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    refuse(command, expected)


@pytest.mark.parametrize(
    "command",
    [
        *("train.py", "sweep.py", "evaluate.py", "generate.py", "report.py"),
        *(f"-m ropewalk {name}" for name in COMMANDS),
        *("-m ropewalk.theory", "-m ropewalk.tpu.jobset"),
    ],
)
def test_a_python_without_packages_names_the_environment(command, run_script):
    """README's commands in a shell where .venv is not active; -S hides all installed packages."""
    done = run_script("-S", *command.split(), "--help", check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "lacks the packages of ropewalk. Run: " in done.stderr and "activate" in done.stderr


def test_processes_that_differ(monkeypatch):
    """Process 1 has other code; then it refuses by itself."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda row: np.stack([0 * row, row]))
    with pytest.raises(ValueError, match="process 1 has code other than process 0"):
        distributed.check_alike(TINY)
    with (
        pytest.raises(ValueError, match="process 1: no disk here"),
        distributed.refusing_together(),
    ):
        raise ValueError("no disk here")


INDEX = "model.safetensors.index.json"


def change(name: str, array: np.ndarray | None) -> None:
    """Replace a tensor of the exported model, or remove it."""
    path = Path("hf/model.safetensors")
    arrays = load_file(path)
    arrays.pop(f"{name}.weight", None)
    if array is not None:
        arrays[f"{name}.weight"] = array.astype(np.float32)
    save_file(arrays, path)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.rename("hf/pytorch_model.bin"), f"0 *.safetensors and no {INDEX}. Pick"),
        (lambda path: os.truncate(path, path.stat().st_size - 9), "model.safetensors is damaged"),
        (lambda _: change("model.norm", None), "hf lacks the tensor model.norm.weight"),
        (lambda _: change("model.norm", np.ones(5)), "model.norm.weight has shape [5]; config"),
        (lambda _: change("lm_head", np.zeros((512, 64))), "lm_head.weight differs from the embed"),
    ],
)
def test_a_folder_that_is_not_an_importable_model(damage, expected, refuse):
    call("-m", "interop", "export", "run", "hf")
    damage(Path("hf/model.safetensors"))
    refuse("import hf new", expected)
