"""One trainer a run: whoever trains holds the run's lock, which a dead process does not.

In a bucket, which has no locks, the last one who began does: it leaves its name there, and who
finds another's when it comes to save ends without having written anything.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from data.files import write_atomically
from data.locks import try_lock
from experiment import distributed
from experiment.run import common_steps
from settings.places import in_bucket
from training.plan import Plan


@contextlib.contextmanager
def run_lock(plan: Plan) -> Iterator[Callable[[], None]]:
    """Holds the directories of all runs of `plan`, by the first process alone.

    Yields:
      What is to be called before anything is saved; by all processes together. It raises
      ValueError in all of them if another one trains there by now.

    Raises:
      ValueError: if another process trains there, or did since the plan was made; in all processes.
    """
    name = f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})\n"
    in_buckets = [run.path for run in plan.runs if in_bucket(run.path)]

    def check() -> None:
        if not in_buckets:
            return
        with distributed.refusing_together():
            for path in in_buckets if distributed.is_primary_host() else ():
                if (theirs := (path / ".lock").read_text()) != name:
                    raise ValueError(
                        f"{path} is being trained by {theirs.strip()}, which began later; this "
                        "process ends, and what it had not saved is lost"
                    )

    with contextlib.ExitStack() as locks:
        with distributed.refusing_together():
            if distributed.is_primary_host():
                for run in plan.runs:
                    if in_bucket(run.path):
                        write_atomically(run.path / ".lock", name)
                    else:
                        locks.enter_context(_alone(run.path))
                # What the plan says may have been true before this process had the lock only.
                for run, config in zip(plan.runs, plan.configs, strict=True):
                    run.check_resumable(config)
                if max(common_steps(plan.runs), default=0) != plan.start_step:
                    raise ValueError(
                        f"another process has trained {plan.runs[0].path} just now; run the same "
                        "command again"
                    )
        yield check


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    path.mkdir(parents=True, exist_ok=True)
    with try_lock(path / ".lock") as file:
        if file is None:
            holder = (path / ".lock").read_text().strip() or "another process"
            raise ValueError(
                f"{path} is being trained by {holder}; wait for it or stop it, or use another "
                "--workdir"
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
