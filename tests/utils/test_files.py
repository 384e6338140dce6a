"""Atomic writes by concurrent and killed processes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from utils.files import write_atomically

ROOT = Path(__file__).parents[2]


def test_many_may_write_one_file_at_once(tmp_path):
    """The jobs of an array start one sweep in the same second."""
    path = tmp_path / "sweep.json"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: write_atomically(path, str(number) * 1000), range(200)))
    (file,) = tmp_path.iterdir()
    assert file == path and len({*path.read_text()}) <= 3


def killed_while_writing(folder: Path) -> None:
    """Leave the part file of a killed writer beside every file of a folder."""
    paths = [str(path) for path in folder.rglob("*") if path.is_file()]
    code = (
        "import os, sys; from pathlib import Path; from utils.files import write_atomically\n"
        "os.replace = lambda *_: os._exit(137)\n"
        "for path in sys.argv[1:]:\n"
        "    if not os.fork(): write_atomically(Path(path), '{half')\n"
        "    os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code, *paths], cwd=ROOT, check=True)
    assert len([*folder.rglob("*.part")]) == len(paths) > 10


@pytest.mark.long
@pytest.mark.slow
def test_part_files_of_a_killed_writer_are_ignored(tiny_data, run_script, tmp_path):
    sweep = tmp_path / "sweep"
    overrides = ("train.num_steps=4", "train.save_every=2", "evals.tasks=[kv]", "evals.documents=8")
    train = (
        "sweep.py",
        "tiny",
        *tiny_data,
        "--workdir",
        sweep,
        "model.rotary.base=10,100",
        *overrides,
    )
    run_script(*train)
    run_script("evaluate.py", sweep)
    run_script("report.py", sweep)
    rows = (sweep / "results.csv").read_bytes()
    (sweep / "base=10/checkpoints/4").rename(tmp_path / "4")  # it goes on
    killed_while_writing(sweep)
    run_script(*train)
    run_script("evaluate.py", sweep)
    run_script("report.py", sweep)
    assert (sweep / "results.csv").read_bytes() == rows
