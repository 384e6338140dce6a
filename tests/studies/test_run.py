"""A study run by its command: stopped, killed and gone on with, it ends with the same rows."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from studies import rows
from studies.piece import Piece, work
from studies.queue import Queue, make_job

ROOT = Path(__file__).parent.parent.parent

CARD = """
from configs import find_config
from configs.changes import change
from studies.card import Card, Measurement, Member

cards = [
    Card(
        name="echo",
        question="?",
        shared=change(
            find_config("tiny"),
            model=dict(num_layers=1),
            data=dict(source="retrieval", retrieval_tasks=("kv",), prepared_root="{data}"),
            train=dict(num_steps={steps}, save_every=10),
            evals=dict(tasks=("kv",)),
        ),
        members=(Member(name="ten", overrides=("model.rotary.base=10",)),),
        measurements=(Measurement(), Measurement(name="headless", masked_heads=((0, 1),))),
    )
]
"""


@pytest.fixture
def study(tmp_path, shared_folder):
    """A folder with one card that trains once; the folder of its work."""
    folder = tmp_path / "study"
    folder.mkdir()
    card = CARD.format(data=shared_folder / "data", steps=80)
    (folder / "cards.py").write_text(card)
    return folder


@pytest.fixture
def start(study, environment):
    """Starts `run` on the study; whatever it starts is gone at the end."""
    started = []
    environment = {**environment, "JAX_PLATFORMS": "cpu"}

    def start() -> subprocess.Popen:
        words = "-m", "studies", "run", study, "--cores", "1", "--workdir", study / "work"
        command = [sys.executable, *map(str, words)]
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()


def wait_for_step(study: Path, step: int) -> None:
    """Until a checkpoint of at least this step is there."""
    deadline = time.monotonic() + 120
    pattern = "echo/ten,seed=0/whole-*/checkpoints/*[0-9]"
    while max((int(p.name) for p in (study / "work").glob(pattern)), default=-1) < step:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_stopped_and_killed_it_ends_with_the_same_row(study, start, unoptimized, tmp_path):
    stopped = start()
    wait_for_step(study, 10)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 130 and "stopping: workers save" in said, said

    # Its worker, whom nobody told, sees that it is alone.
    killed = start()
    wait_for_step(study, 30)
    killed.kill()
    killed.communicate()

    finished = start()
    _, said = finished.communicate(timeout=300)
    assert finished.returncode == 0, said
    assert not list((study / "work" / "echo").rglob("checkpoints"))

    job = make_job(str(study), workdir=tmp_path / "at once")
    (run,) = Queue(job).runs
    found = work(Piece((run,), 0), job.workdir, [[]])
    assert found
    (row,) = rows.read_all(study / "rows")
    assert row.core_seconds > 0
    at_once = rows.write(tmp_path / "other", found[0])
    again = rows.write(study / "again", dataclasses.replace(row, core_seconds=0.0))
    assert again.read_bytes() == at_once.read_bytes()
    assert [answers.measurement for answers in row.answers] == ["whole", "headless"]

    nothing = start()
    _, said = nothing.communicate(timeout=60)
    assert nothing.returncode == 0 and "nothing is missing" in said


@pytest.mark.slow
def test_runs_in_one_program_are_each_its_own(study, unoptimized, tmp_path):
    """What an accelerator does: members together, and their seeds' rows of data apart."""
    text = (study / "cards.py").read_text().replace("num_steps=80", "num_steps=6")
    more = 'Member(name="b30", overrides=("model.rotary.base=30",)),'
    (study / "cards.py").write_text(text.replace("members=(", f"members=({more}"))
    job = make_job(str(study), seeds=(1,), workdir=tmp_path / "work")
    (together,) = Queue(job).pending(together=True)
    found = work(together, job.workdir, [[], []])
    assert found and [row.member for row in found] == ["b30", "ten"]
    alone = work(Piece(together.runs[1:], 0), tmp_path / "alone", [[]])
    assert alone
    assert found[1].losses == pytest.approx(alone[0].losses, rel=1e-4)
    assert found[0].losses["loss"] != pytest.approx(found[1].losses["loss"], rel=1e-4)
