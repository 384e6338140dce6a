"""Run directories of a training: their locks, configs, and tokenizers.

One process trains a run at a time. The lock of a dead process is free.
A bucket has no locks. There the process that started last owns the run: each process writes its
name into `.lock`, and a process that finds another name before a save ends without writing.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from ropewalk.experiment import distributed
from ropewalk.experiment.run import common_steps
from ropewalk.training.plan import Plan
from ropewalk.utils.errors import raise_outages
from ropewalk.utils.files import write_atomically
from ropewalk.utils.locks import try_lock
from ropewalk.utils.messages import print_note
from ropewalk.utils.paths import copy_missing, in_bucket
from ropewalk.utils.threads import num_cpus


@contextlib.contextmanager
def open_directories(plan: Plan, command: str) -> Iterator[Callable[[], None]]:
    """Lock the directories of all runs of `plan`, and write config and tokenizer into them.

    Only the primary host does this. Existing files stay.

    Args:
      plan: the checked plan.
      command: the command line, recorded in each run; empty if there is none.

    Yields:
      A function that all processes must call together before each save. It raises ValueError in
      all of them if another process trains these runs by now.

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
                with raise_outages(path, writes=True):
                    theirs = (path / ".lock").read_text()
                if theirs != name:
                    raise ValueError(
                        f"{path} is being trained by {theirs.strip()}, which started later; this "
                        "process ends, and its unsaved updates are lost"
                    )

    with contextlib.ExitStack() as locks:
        with distributed.refusing_together():
            if distributed.is_primary_host():
                for run in plan.runs:
                    _lock(run.path, name, locks)
                _write_records(plan, command)
        # All hosts write checkpoints into directories that only one of them creates.
        distributed.barrier("run directories are made")
        yield check


def _lock(path: Path, name: str, locks: contextlib.ExitStack) -> None:
    if in_bucket(path):
        write_atomically(path / ".lock", name)
        return
    path.mkdir(parents=True, exist_ok=True)
    file = locks.enter_context(try_lock(path / ".lock"))
    if file is None:
        holder = (path / ".lock").read_text().strip() or "another process"
        raise ValueError(
            f"{path} is being trained by {holder}; wait for it or stop it, or use another --workdir"
        )
    file.truncate(0)
    file.write(name)
    file.flush()


def _write_records(plan: Plan, command: str) -> None:
    # The runs may have changed between the plan and the lock.
    if max(common_steps(plan.runs), default=0) != plan.start_step:
        raise ValueError(
            f"another process has trained {plan.runs[0].path} just now; run the same command again"
        )
    for run, _, config in plan.members:
        run.check_resumable(config)
    tokenizer_path = plan.data[0].tokenizer_path
    held_out, *other_folders = {data.held_out for data in plan.data}
    texts = {
        "held_out": list(dict.fromkeys(data.held_out_fingerprint for data in plan.data)),
        "trained_on": list(dict.fromkeys(data.fingerprint for data in plan.data)),
    }
    machine = _describe_machine()
    for run, overrides, config in plan.members:
        if not run.is_started():
            origin = texts | {"machine": machine}
            run.write_config(config, overrides, plan.tokenizer.fingerprint, **origin)
        elif changed := _difference(run.record.get("machine", machine), machine):
            print_note(None, f"{run.path} began with {changed}; it may end with other bits")
        if command:
            run.record_command(command)
        copy_missing(tokenizer_path, run.path / tokenizer_path.name)
        # With several texts, none of them is the held-out text of the run.
        if held_out and not other_folders:
            copy_missing(held_out, run.held_out_path, last="store.json")


def _describe_machine() -> dict[str, Any]:
    """Return what, besides the config, decides how XLA orders sums, and so the bits of a run."""
    cores = num_cpus() if jax.default_backend() == "cpu" else None
    flags = os.environ.get("XLA_FLAGS", "")
    device = f"{jax.device_count()} {jax.devices()[0].device_kind}"
    return {"jax": jax.__version__, "devices": device, "cores": cores, "XLA_FLAGS": flags}


def _difference(before: Any, now: dict[str, Any]) -> str:
    """Say which values differ; empty if none do."""
    names = [name for name in now if isinstance(before, dict) and before.get(name) != now[name]]
    return ", ".join(f"{name}={before.get(name)} (now {now[name]})" for name in names)
