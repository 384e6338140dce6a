"""A study that is stopped, killed and continued ends with the same rows."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from studies import rows
from studies.jobs import list_items, list_runs, make_job
from studies.work import train_budget

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
    """A folder with one card that trains once."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "cards.py").write_text(CARD.format(data=shared_folder / "data", steps=400))
    return folder


@pytest.fixture
def start(study, environment):
    """Start `run` on the study; kill all processes at the end."""
    processes = []

    def start() -> subprocess.Popen:
        arguments = "-m", "studies", "run", study, "--cores", "1", "--workdir", study / "work"
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env={**environment, "JAX_PLATFORMS": "cpu"},
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()


def wait_for_step(study: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    pattern = "echo/ten,seed=0/decayed-*/checkpoints/*[0-9]"
    while max((int(p.name) for p in (study / "work").glob(pattern)), default=-1) < step:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_stopped_and_killed_it_ends_with_the_same_row(study, start, tmp_path):
    stopped = start()
    wait_for_step(study, 10)
    stopped.send_signal(signal.SIGINT)
    _, stderr = stopped.communicate(timeout=60)
    assert stopped.returncode == 130 and "stopping: training saves" in stderr, stderr

    # A worker whose parent was killed ends too: it would keep the lock of its run.
    killed = start()
    wait_for_step(study, 30)
    killed.kill()
    killed.communicate()

    finished = start()
    _, stderr = finished.communicate(timeout=300)
    assert finished.returncode == 0, stderr
    assert not list((study / "work" / "echo").rglob("checkpoints"))

    runs = list_runs(make_job(str(study)))
    expected = train_budget(runs, 0, tmp_path / "at once", [[]])
    (row,) = rows.read_all(study / "rows")
    assert expected and row.core_seconds > 0
    path = rows.write(study / "again", dataclasses.replace(row, core_seconds=0.0))
    assert path.read_bytes() == rows.write(tmp_path / "other", expected[0]).read_bytes()
    assert [answers.measurement for answers in row.answers] == ["whole", "headless"]

    idle = start()
    _, stderr = idle.communicate(timeout=60)
    assert idle.returncode == 0 and "nothing is missing" in stderr


@pytest.mark.long
def test_runs_in_one_program_keep_their_own_results(study, tmp_path):
    """On an accelerator members train together; each must get the row that it gets alone."""
    text = (study / "cards.py").read_text().replace("num_steps=400", "num_steps=6")
    more = 'Member(name="b30", overrides=("model.rotary.base=30",)),'
    (study / "cards.py").write_text(text.replace("members=(", f"members=({more}"))
    (item,) = list_items(make_job(str(study), seeds=(1,)), apart=False)
    together = train_budget(item.runs, 0, tmp_path / "work", [[], []])
    assert together and [row.member for row in together] == ["b30", "ten"]
    alone = train_budget(item.runs[1:], 0, tmp_path / "alone", [[]])
    assert alone
    assert together[1].losses == pytest.approx(alone[0].losses, rel=1e-4)
    assert together[0].losses["loss"] != pytest.approx(together[1].losses["loss"], rel=1e-4)
