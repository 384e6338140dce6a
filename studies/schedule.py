"""Run a study: on a process pool with a process per CPU core, or here on an accelerator."""

import collections
import contextlib
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import jax
from rich.console import Console

from experiment.compiled import keep_programs
from experiment.devices import check_platform
from studies import forecasts
from studies.jobs import Job, Progress, WorkItem, list_items
from studies.work import run_next_budget
from utils import plugins
from utils.files import check_writable
from utils.locks import try_lock
from utils.threads import num_cpus

# One thread per worker: two workers then share no core.
_WORKER_ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # 2 MiB pages: a step allocates its scratch memory anew each time (Makefile).
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def run(job: Job, *, num_workers: int | None = None) -> bool:
    """Run what is missing of a study; return whether nothing is missing at the end.

    Args:
      job: the job.
      num_workers: maximum number of processes; None: one for each CPU core.

    Raises:
      ValueError: for anything that the user has to change.
    """
    progress = _open(job)
    job.local_dir.mkdir(parents=True, exist_ok=True)
    with try_lock(job.local_dir / "lock") as lock:
        if not lock:
            raise ValueError(f"another process runs {job.study} in {job.workdir}; wait for it")
        on_cpu = jax.default_backend() == "cpu"
        items = [i for i in list_items(job, apart=on_cpu) if not progress.is_done(i)]
        if not items:
            _print(f"nothing is missing of {job.study}")
            return True
        if on_cpu:
            return _run_in_pool(items, progress, min(num_workers or num_cpus(), len(items)))
        return _run_here(items, progress)


def run_part(job: Job, number: int, *, apart: bool) -> bool:
    """Run one item of `jobs.list_items` in this process, as a job of a cluster does.

    Returns:
      Whether nothing is missing of the item; False if a signal stopped it.

    Raises:
      ValueError: for anything that the user has to change.
    """
    items = list_items(job, apart=apart)
    if not 0 <= number < len(items):
        raise ValueError(f"no part {number}: {job.study} has parts 0 to {len(items) - 1}")
    item = items[number]
    if jax.default_backend() != "cpu":
        return _run_here([item], _open(job))
    return _run_here([WorkItem((run,)) for run in item.runs], _open(job))


def check(job: Job) -> Progress:
    """Check the rows and forecasts of a job.

    Raises:
      ValueError: if a row does not match its card, or a forecast is missing.
    """
    progress = Progress(job).check_rows()
    forecasts.check(job.study, progress.runs)
    return progress


def _open(job: Job) -> Progress:
    check_platform()
    check_writable(job.rows, "use another --rows")
    return check(job)


def _run_here(items: Sequence[WorkItem], progress: Progress) -> bool:
    """Run items one after the other in this process."""
    keep_programs()
    with _catch_signals() as stop:
        for item in items:
            while not progress.is_done(item):
                if stop.is_set() or not run_next_budget(item, progress):
                    return False
            _print_results(item, progress)
    return True


def _run_in_pool(items: Sequence[WorkItem], progress: Progress, num_workers: int) -> bool:
    """Run items of one run each in worker processes."""
    log = progress.job.local_dir / "workers.log"
    for name, value in _WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    context = multiprocessing.get_context("spawn")
    _print(f"{progress.job.study}: {num_workers} workers; {progress.describe()}")
    with (
        _catch_signals() as stop,
        ProcessPoolExecutor(num_workers, context, _start_worker, (log, plugins.allowed())) as pool,
        _console().status("") as status_line,
    ):
        waiting, running, error = collections.deque(items), {}, None
        while True:
            if error or stop.is_set():
                waiting.clear()
                _stop_workers()
            while waiting and len(running) < num_workers:
                item = waiting.popleft()
                running[pool.submit(_run_in_worker, progress.job, item.runs[0].path)] = item
            if not running:
                break
            if _console().is_terminal:  # else nobody sees it, and it costs a tenth of a core
                status_line.update("; ".join([*map(str, running.values()), progress.describe()]))
            for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                item = running.pop(future)
                error = error or future.exception()
                if isinstance(error, BrokenProcessPool):
                    _stop_workers(kill=True)
                    raise ValueError(f"a worker process ended unexpectedly; see {log}")
                _print_results(item, progress)
    if error:
        raise error
    return all(map(progress.is_done, items))


def _stop_workers(*, kill: bool = False) -> None:
    """Ask all workers to save and stop, or end them; they listen only while they train."""
    for process in multiprocessing.active_children():
        process.kill() if kill else process.terminate()


def _start_worker(log: Path, code_files: Sequence[str]) -> None:
    """Prepare a worker process: lowest priority, output into a file, signals ignored.

    `code_files` are the files of code that the command line allowed.
    """
    os.nice(19)
    for path in code_files:
        plugins.allow(path)
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    keep_programs()


def _exit_with_parent() -> None:
    """End this worker when its parent process has ended, however that ended."""
    parent = multiprocessing.parent_process()
    assert parent  # a worker has one
    parent.join()
    os._exit(1)


_progress_of = functools.cache(Progress)


def _run_in_worker(job: Job, path: str) -> None:
    """Run one run, by its path: the functions in its card's claims cannot be pickled."""
    progress = _progress_of(job)
    item = WorkItem(tuple(run for run in progress.runs if run.path == path))
    while not progress.is_done(item) and run_next_budget(item, progress):
        pass


@contextlib.contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; training by itself saves and stops on both."""
    stop = threading.Event()

    def handle(number: int, frame) -> None:
        if not stop.is_set():
            _print("stopping: training saves at its next update")
        stop.set()

    previous = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@functools.cache
def _console() -> Console:
    return Console(stderr=True, markup=False)


def _print(text: str) -> None:
    _console().print(text, highlight=False, soft_wrap=True)


def _print_results(item: WorkItem, progress: Progress) -> None:
    for run in item.runs:
        for row in progress.rows_of(run)[-1:]:
            status = row.final or "saved, not finished"
            _print(
                f"{run.path} at {row.tokens / 1e6:.3g}M tokens: L50 {row.l50:.3g}, {status}; "
                f"{progress.describe()}"
            )
