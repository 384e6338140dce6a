"""One trainer a run: whoever trains holds the run's lock, which a dead process does not."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from data.locks import only_one
from experiment import distributed
from experiment.run import common_steps
from training.plan import Plan


@contextlib.contextmanager
def held(plan: Plan) -> Iterator[None]:
    """Holds the directories of all runs of `plan`, by the first process alone.

    Raises:
      ValueError: if another process trains there, or did since the plan was made; in all processes.
    """
    with contextlib.ExitStack() as locks:
        with distributed.refusing_together():
            if distributed.is_primary_host():
                for run in plan.runs:
                    locks.enter_context(_alone(run.path))
                # What the plan says may have been true before this process had the lock only.
                for run, config in zip(plan.runs, plan.configs, strict=True):
                    run.check_resumable(config)
                if max(common_steps(plan.runs), default=0) != plan.start_step:
                    raise ValueError(
                        f"another process has trained {plan.runs[0].path} just now; run the same "
                        "command again"
                    )
        yield


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    path.mkdir(parents=True, exist_ok=True)
    with only_one(path / ".lock") as file:
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
