"""Run directories that somebody else made: no command changes a file outside, waits, or breaks."""

import itertools
import json
import os
import shlex
import shutil
import socket
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
    "keep": "-m experiment keep run --out kept",
}
# One function looks at all files of a run: a file, a lock, a folder, a file in it, a new name.
PLACES = "config.json", ".lock", "checkpoints", "checkpoints/2/params/_METADATA", "report.html"


def replace(path: Path) -> Path:
    """Remove what lies at `path`, which need not exist; its folder exists afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


# What takes the place of a file, by name.
FORBIDDEN = {
    "link": lambda path: path.symlink_to("../outside/keys"),
    "dangling link": lambda path: path.symlink_to("../outside/new"),
    "absolute link": lambda path: path.symlink_to(Path("outside/keys").absolute()),
    "circle": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
    "socket": lambda path: bind(os.path.relpath(path)),
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


# Every command with every kind would take minutes; each is in two cases.
CASES = zip(itertools.cycle(PLACES), itertools.cycle(FORBIDDEN), [*COMMANDS, *COMMANDS])


@pytest.mark.parametrize(("place", "kind", "command"), CASES)
def test_links_and_pipes_are_refused(run, place, kind, command):
    FORBIDDEN[kind](replace(run / place))
    before = outside()
    status, error = start(COMMANDS[command])
    assert status == 2 and error.count("\n") == 1 and str(Path("run", place)) in error
    assert outside() == before


def test_links_within_a_run_are_read_and_not_written_through(run):
    """`report.html` is a link to another file of the run."""
    content = (run / "config.json").read_bytes()
    (run / "report.html").symlink_to("config.json")
    assert start(COMMANDS["report"])[0] == 0
    assert (run / "config.json").read_bytes() == content
    assert (run / "report.html").read_bytes().startswith(b"<!")


def test_a_member_may_not_leave_its_sweep(run):
    Path("sweep").mkdir()
    Path("sweep/member").symlink_to(run)
    record = {"config": "tiny", "overrides": [], "members": ["member"]}
    Path("sweep/sweep.json").write_text(json.dumps(record))
    for command in ("report.py", "evaluate.py", "-m probes"):
        status, error = start(f"{command} sweep")
        assert status == 2 and "sweep/member links to" in error


def test_an_imported_template_is_no_file_of_the_user(run):
    """Else the export of the imported run would publish it."""
    status, error = start(COMMANDS["export"])
    assert status == 0, error
    Path("folder/chat_template.jinja").symlink_to("../outside/keys")
    status, error = start("import folder imported --no-compare")
    assert status == 2 and "chat_template.jinja links to" in error
    assert not Path("imported").exists()


def test_pages_replace_no_device(run):
    os.mkfifo("page.html")
    assert start("report.py run --out page.html")[0] == 2
