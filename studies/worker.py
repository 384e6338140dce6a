"""A worker of a study: takes pieces until none is left. `studies.driver` starts it.

    python -m studies.worker JOB [FILE.py ...]     a job as JSON; files that it may execute

It says what it does on stdout, one JSON object a line, and stops at the next update when it is sent
SIGTERM or when stdin ends: nobody is left then to read what it says.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from data.files import check_writable
from experiment.compiled import keep_programs
from experiment.devices import check_platform
from settings import folders
from settings.places import in_bucket, place
from studies import forecasts, rows
from studies.piece import Piece, Run, clean, work
from studies.queue import Job, Queue

# Long enough to be worth a start, short enough that little waits for a worker that has too much.
PIECE_SECONDS = 20 * 60
# A checkpoint of such models takes some megabytes.
LEAST_BYTES = 2**28
# Programs stay in memory for as many pieces, some 20 MB each; then they are read from disk again.
_PIECES_A_PROGRAM = 10


class Signals:
    """Why training stops: told to, or for the next piece."""

    def __init__(self, *, driven: bool = True):
        """`driven`: by `studies.driver`, at the other end of stdin."""
        self.told, self.over = False, False
        signal.signal(signal.SIGTERM, self._note_told)
        signal.signal(signal.SIGALRM, self._note_over)
        if not driven:
            signal.signal(signal.SIGINT, self._note_told)
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: it tells all
        threading.Thread(target=self._watch_stdin, daemon=True).start()

    def _note_told(self, number: int, frame) -> None:
        self.told = self.told or not self.over

    def _note_over(self, number: int, frame) -> None:
        self.over = True
        signal.raise_signal(signal.SIGTERM)  # what the training loop listens to

    def _watch_stdin(self) -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)


def say(**event: object) -> None:
    """Tells the driver."""
    print(json.dumps(event), flush=True)


def check_room(path: Path) -> None:
    """Raises ValueError if the disk has no room for checkpoints."""
    if in_bucket(path):
        return
    free = shutil.disk_usage(path).free
    if free < LEAST_BYTES:
        raise ValueError(
            f"no room on the disk: {path} has {free / 2**20:.0f} MiB free, and checkpoints need "
            f"{LEAST_BYTES / 2**20:.0f}; what is finished is kept, free some and run again"
        )


def yield_to_others() -> None:
    """The lowest priority among all processes, not among those of this session alone."""
    os.nice(19)
    group = Path("/proc/self/autogroup")
    # Linux shares a core among sessions first, each with a niceness of its own, and this process
    # has a session to itself: without this it would take half of what the user works on.
    with contextlib.suppress(OSError):
        if group.exists():
            group.write_text("19")


def main() -> int:
    """Works until nothing is left, or a signal; 1 if something has to be mended first."""
    yield_to_others()
    signals = Signals()
    record = json.loads(sys.argv[1])
    for path in sys.argv[2:]:  # those that the driver's command line named
        folders.allow(path)
    job = Job(**record | {name: place(record[name]) for name in ("workdir", "rows")})
    keep_programs()
    try:
        work_off(Queue(job), signals)
    except ValueError as error:
        say(error=str(error))
        return 1
    except OSError as error:
        say(error=f"{error}; what is finished is kept")
        return 1
    return 0


def work_here(job: Job, runs: Sequence[Run]) -> bool:
    """Works in this process on some runs of a study, a part of it that a cluster's job was given.

    Returns:
      Whether nothing is missing of them; False if a signal stopped it.

    Raises:
      ValueError: for anything to be mended.
    """
    queue = Queue(job, runs)
    forecasts.check(job, queue)
    check_writable(job.rows, "use another --rows")
    signals = Signals(driven=False)
    keep_programs()
    job.workdir.mkdir(parents=True, exist_ok=True)
    work_off(queue, signals)
    return all(map(queue.is_done, queue.runs))


def work_off(queue: Queue, signals: Signals) -> None:
    """Takes piece after piece."""
    check_platform()
    together = jax.default_backend() != "cpu"
    num_done = 0
    while not signals.told:
        with queue.claim(together=together) as piece:
            if piece is not None:
                work_on(queue, piece, signals)
                num_done += 1
                if num_done % _PIECES_A_PROGRAM == 0:
                    jax.clear_caches()
            elif not queue.pending(together=together):
                return
        if piece is None:  # others are at all that is left, and may come back with more
            time.sleep(1)


def work_on(queue: Queue, piece: Piece, signals: Signals) -> None:
    """One piece, or as much of it as there is time for."""
    workdir = queue.job.workdir
    check_room(workdir)
    say(begin=piece.name)
    before = [queue.rows_of(run) for run in piece.runs]
    spent = spent_before(workdir, piece) - time.process_time()  # of all threads
    signals.over = False
    signal.alarm(PIECE_SECONDS)
    try:
        found = work(piece, workdir, before)
    finally:
        signal.alarm(0)
        spent += time.process_time()
        note_spent(workdir, piece, spent)
    if found is None:
        signals.told = signals.told or not signals.over
        say(stopped=piece.name)
        return
    for run, row in zip(piece.runs, found, strict=True):
        row = dataclasses.replace(row, core_seconds=round(spent / len(found), 1))
        rows.write(queue.job.rows, row)
        clean(run, workdir, row)
        say(done=run.path, tokens=row.tokens, l50=str(row.l50), final=row.final)


def spent_before(workdir: Path, piece: Piece) -> float:
    """Core-seconds of a piece that was begun before, without those of a worker that was killed."""
    path = _spent_path(workdir, piece)
    return float(path.read_text()) if path.exists() else 0.0


def note_spent(workdir: Path, piece: Piece, seconds: float) -> None:
    """For when the piece is gone on with."""
    path = _spent_path(workdir, piece)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{seconds:.1f}")


def _spent_path(workdir: Path, piece: Piece) -> Path:
    run = piece.runs[0]
    return workdir / run.path / f"seconds-{run.tokens(piece.level)}"


if __name__ == "__main__":
    sys.exit(main())
