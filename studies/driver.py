"""Runs a study: a worker a core, until nothing is missing."""

import contextlib
import json
import os
import queue as queues
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from data.files import check_writable
from data.locks import try_lock
from settings import folders
from studies import forecasts
from studies.piece import expected_seconds
from studies.queue import Job, Queue, parts

# One thread each: two cores share nothing then, and neither waits for the other.
_ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # 2 MiB pages: a step's scratch memory is taken anew each time (Makefile).
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


class Worker:
    """A process of `studies.worker`; what it says goes into `events`, with its number."""

    def __init__(self, number: int, job: Job, core: int | None, events: queues.Queue):
        self.log_path = job.here / f"worker{number}.log"
        record = job._asdict() | {"workdir": str(job.workdir), "rows": str(job.rows)}
        command = [sys.executable, "-m", "studies.worker", json.dumps(record), *folders.allowed()]
        with self.log_path.open("a") as log, _pinned_to(core):
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # ends with this process, however that ends
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ if core is None else {**_ENVIRONMENT, **os.environ},
                start_new_session=True,  # Ctrl-C comes here, and from here to all
            )
        self._number, self._events = number, events
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._events.put((self._number, json.loads(line)))
        self._events.put((self._number, {"exit": self.process.wait()}))


@contextlib.contextmanager
def _pinned_to(core: int | None) -> Iterator[None]:
    """Processes started in here have this core to themselves, from their first thread on."""
    before = None if core is None else os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def cores() -> Sequence[int | None]:
    """Those this process may use; None for each where the system pins none."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [None] * (os.cpu_count() or 1)


def run(job: Job, *, num_workers: int | None = None, console: Console | None = None) -> bool:
    """Does what is missing of a study; whether nothing is missing at the end.

    Args:
      job: what to do.
      num_workers: at most; None: as many as there are cores, and one for an accelerator.
      console: where progress goes.

    Raises:
      ValueError: for anything to be mended, before compute is spent or at the worker that met it.
    """
    console = console or Console(stderr=True)
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"--cores {num_workers} must be at least 1")
    queue = Queue(job)
    forecasts.check(job, queue)
    check_writable(job.rows, "use another --rows")
    job.here.mkdir(parents=True, exist_ok=True)
    with try_lock(job.here / "lock") as held:
        if not held:
            raise ValueError(f"{job.workdir} is being worked on by another run; wait for it")
        pieces = queue.pending(together=False)
        if not pieces:
            console.print(f"nothing is missing of {job.study}")
            return True
        available = [None] if has_accelerator() else cores()
        chosen = available[: min(num_workers or len(available), len(pieces))]
        return _Progress(queue, console).follow(chosen)


def listed_parts(job: Job, *, apart: bool) -> list[str]:
    """The parts of a study (`studies.queue.parts`) in words, in order.

    Raises:
      ValueError: for what each of them would refuse, so that it is said before they are started.
    """
    forecasts.check(job, Queue(job))
    return ["+".join(run.path for run in runs) for runs in parts(job, apart=apart)]


def has_accelerator() -> bool:
    """Whether JAX would compute on something else than CPUs."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    # Asked in a process of its own: devices belong to whoever first asks for them.
    code = "import jax; print(jax.default_backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() not in ("", "cpu")


class _Progress:
    """The workers while they work, and what is said of them."""

    def __init__(self, queue: Queue, console: Console):
        self._queue, self._console = queue, console
        self._events: queues.Queue[tuple[int, dict[str, Any]]] = queues.Queue()
        self._told = False
        self._at: dict[int, str] = {}  # the piece of each worker

    def follow(self, chosen: Sequence[int | None]) -> bool:
        """Until all workers have ended; they are told to stop when this process is."""
        job = self._queue.job
        workers = [Worker(n, job, core, self._events) for n, core in enumerate(chosen)]
        before = {number: signal.signal(number, self._stop) for number in _STOPPING}
        errors, running, told_at = [], set(range(len(workers))), 0.0
        self._print(f"{job.study}: {len(workers)} workers; {left(self._queue)}")
        try:
            with self._console.status("") as shown:  # on a terminal only
                while running:
                    if (self._told or errors) and time.monotonic() > told_at + 10:
                        told_at = time.monotonic()
                        for number in running:
                            workers[number].process.terminate()
                    try:
                        number, event = self._events.get(timeout=0.5)
                    except queues.Empty:
                        continue
                    if "exit" in event:
                        running.discard(number)
                        # One that was told to stop may be told again when it is all but gone.
                        if event["exit"] not in (0, -signal.SIGTERM) and not errors:
                            errors.append(f"a worker failed; see {workers[number].log_path}")
                    elif "error" in event:
                        errors.append(event["error"])
                    else:
                        self._say(number, event)
                        shown.update("; ".join([*self._at.values(), left(self._queue)]))
        finally:
            for worker in workers:
                worker.process.terminate()
            for number, handler in before.items():
                signal.signal(number, handler)
        if errors:
            raise ValueError(errors[0])
        return not self._queue.pending(together=False)

    def _stop(self, number: int, frame) -> None:
        if not self._told:
            self._print("stopping: workers save at their next update")
        self._told = True

    def _say(self, number: int, event: dict[str, Any]) -> None:
        if "begin" in event:
            self._at[number] = event["begin"]
            return
        self._at.pop(number, None)
        if "stopped" in event:
            self._print(f"{event['stopped']}: saved, to be gone on with")
            return
        l50, tokens = float(event["l50"]), event["tokens"] / 1e6
        final = f", {event['final']}" if event["final"] else ""
        self._print(
            f"{event['done']} at {tokens:.3g}M tokens: L50 {l50:.3g}{final}; {left(self._queue)}"
        )

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


_STOPPING = (signal.SIGINT, signal.SIGTERM)


def left(queue: Queue) -> str:
    """How much is left, in words."""
    done = sum(map(queue.is_done, queue.runs))
    text = f"{done} of {len(queue.runs)} runs done"
    hours = seconds_left(queue) / 3600
    return f"{text}, about {hours:.1f} core-hours left" if hours else text


def seconds_left(queue: Queue) -> float:
    """Core-seconds to the budget of every unfinished run, by what finished rows took."""
    measured = expected = rest = 0.0
    for run in queue.runs:
        found = queue.rows_of(run)
        measured += sum(row.core_seconds for row in found)
        expected += sum(expected_seconds(run, level) for level in range(len(found)))
        if not queue.is_done(run):
            # To the budget: whether it takes twice of it nobody knows yet.
            end = max(len(run.levels) - 1, len(found) + 1) if len(run.levels) > 1 else 1
            rest += sum(expected_seconds(run, level) for level in range(len(found), end))
    return rest * (measured / expected if measured else 1.0)


def status(queue: Queue) -> str:
    """What is done and what is missing, card by card."""
    lines = [left(queue)]
    for name in queue.job.cards:
        ofs = [run for run in queue.runs if run.card.name == name]
        done = sum(map(queue.is_done, ofs))
        begun = sum(bool(queue.rows_of(run)) for run in ofs) - done
        lines.append(f"  {name}: {done} of {len(ofs)} runs done, {begun} begun")
    return "\n".join(lines)
