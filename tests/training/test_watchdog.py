"""An update or a save that never ends stops the process; a suspension does not."""

import signal
import subprocess
import sys
import time

import pytest

from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.errors import HANG_STATUS
from tests.conftest import ROOT
from tests.training.helpers import CONSTANT

HANG = """
import sys, time
from ropewalk.experiment import checkpoint
from ropewalk.training import loop, watchdog
from ropewalk.training.command import train
watchdog._LEAST = watchdog._LONGEST_SAVE = 4.0
watchdog._EVERY = 0.05
read = loop._Batches.read_next
def hang(self):
    if self._rows >= 12 * self._batch_size:
        time.sleep(60)
    time.sleep(0.06)
    return read(self)
def hang_closing(self, step=0):
    self._manager.wait_until_finished()
    time.sleep(60)
if sys.argv.pop(1) == "update":
    loop._Batches.read_next = hang
else:
    checkpoint.Checkpoints.close = hang_closing
sys.exit(train("test"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "saved"), [("update", 10), pytest.param("save", 2, marks=pytest.mark.long)]
)
def test_what_never_ends_ends_the_process(tiny_data, tmp_path, run_script, event, saved):
    command = [event, "tiny", "--workdir", tmp_path / "run", *tiny_data, *CONSTANT]
    command += ["train.save_every=5", *(["train.num_steps=2"] if event == "save" else [])]
    done = run_script("-c", HANG, *command, check=False)
    assert done.returncode == HANG_STATUS, done.stderr
    assert "in hang" in done.stderr  # where the main thread waits
    assert f"no {event} ended for" in done.stderr.splitlines()[-1]
    assert RunDirectory(tmp_path / "run").steps()[-1] == saved


SUSPENDED = """
import sys, time
from ropewalk.training import watchdog
watchdog._LEAST, watchdog._EVERY = 0.6, 0.05
with watchdog.Watchdog() as dog:
    dog.beat()
    print("started", flush=True)
    sys.stdin.readline()
    time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_suspended_process_does_not_hang(environment):
    """It stands still for 2.5 times as long as an update may take, as after Ctrl-Z."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    process.communicate("go on\n")
    assert process.returncode == 0
