"""Run directories that somebody else made: no command changes a file outside, waits, or breaks."""

import itertools
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.in_process import call_any, limit_time

COMMANDS = {
    "evaluate": "evaluate.py run --tasks kv --documents 8",
    "report": "report.py run",
    "probes": "-m probes run --probes logit_by_distance --documents 2",
    "viewer": "-m probes.viewer run",
    "generate": "generate.py run --prompt import --max-new-tokens 2",
    "export": "export run folder",
    "train": "train.py tiny --workdir run train.num_steps=2",
}
# A file, a lock, a folder, a file in it, a new name.
PLACES = "config.json", ".lock", "checkpoints", "checkpoints/2/params/_METADATA", "report.html"


def replace(path: Path) -> Path:
    """Remove what lies at `path`, which need not exist; its folder exists afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


# What takes the place of a file, by name.
FORBIDDEN = {
    "link": lambda path: path.symlink_to("../outside/keys"),
    "dangling link": lambda path: path.symlink_to("../outside/new"),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


def outside() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("outside").rglob("*")}


@pytest.fixture
def run(copied_run) -> Path:
    """A copy of a run, in a folder beside one with the user's own file."""
    Path("outside").mkdir()
    Path("outside/keys").write_bytes(b"of the user\n")
    return copied_run


def start(command: str) -> tuple[int, str]:
    """Run a command, which must end in one line or with success; return its status and output."""
    with limit_time(120):
        status, output = call_any(*shlex.split(command))
    assert status in (0, 2) and "Traceback" not in output, output
    return status, output


# Every command with every kind would take minutes.
CASES = [*zip(itertools.cycle(PLACES), itertools.cycle(FORBIDDEN), COMMANDS, strict=False)]
CASES.append((PLACES[3], "device", "train"))


@pytest.mark.parametrize(("place", "kind", "command"), CASES)
def test_no_command_writes_through_links_or_waits_for_pipes(run, place, kind, command):
    FORBIDDEN[kind](replace(run / place))
    before = outside()
    status, error = start(COMMANDS[command])
    assert status == 0 or "error: " in error.splitlines()[-1]
    assert outside() == before


@pytest.mark.parametrize("folder", ["checkpoints", "held_out", "probes", "tensorboard"])
def test_a_folder_that_is_a_link_is_refused_before_the_first_step_and_ever_after(run, folder):
    for place, commands in ((Path("new"), ("train",)), (run, ("evaluate", "train", "probes"))):
        replace(place / folder).symlink_to(Path("outside").absolute())
        for command in commands:
            status, error = start(COMMANDS[command].replace("run", str(place), 1))
            assert status == 2 and f"{place}/{folder} links to" in error
    assert list(outside()) == ["outside/keys"]


def test_files_that_other_programs_put_into_a_run_do_not_concern_commands(run):
    """W&B makes such a link at every start, and `cp -al` second names."""
    (run / "wandb").mkdir()
    (run / "wandb" / "debug-core.log").symlink_to(Path("outside/keys").absolute())
    os.mkfifo(run / "wandb" / "pipe")
    shutil.copytree(run, "backup", copy_function=os.link, ignore=shutil.ignore_patterns("wandb"))
    for command in ("evaluate", "train", "report", "generate", "export"):
        assert start(COMMANDS[command])[0] == 0


def test_links_within_a_run_are_read_and_not_written_through(run):
    """`report.html` is a link to another file of the run."""
    content = (run / "config.json").read_bytes()
    (run / "report.html").symlink_to("config.json")
    assert start(COMMANDS["report"])[0] == 0
    assert (run / "config.json").read_bytes() == content
    assert (run / "report.html").read_bytes().startswith(b"<!")


def test_an_imported_template_is_no_file_of_the_user(run):
    """Else the export of the imported run would publish it."""
    status, error = start(COMMANDS["export"])
    assert status == 0, error
    Path("folder/chat_template.jinja").symlink_to("../outside/keys")
    status, error = start("import folder imported --no-compare")
    assert status == 2 and "chat_template.jinja links to" in error
    assert not Path("imported").exists()
