"""Several processes as one run: on a TPU slice, under SLURM, or started one by one.

Every process runs the same program on the same files; the first alone writes what is no checkpoint
and speaks to the user. A lone process goes through here unchanged.
"""

import argparse
import contextlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # whom it waits for is said nowhere else
from jax.experimental import multihost_utils

from experiment.devices import check_platform
from experiment.mesh import device_per_core
from utils.command_line import Parser
from utils.errors import RESTART_STATUS, UnreachableError

# Bytes of a message that one process tells the others.
_MESSAGE = 1024
# Longer than processes that were started together need to find each other.
_SECONDS_OF_SILENCE = 10.0


def initialize(arguments: argparse.Namespace, *, many_members: bool = False) -> None:
    """Finds the other processes of the run, before anything is asked of JAX.

    Args:
      arguments: of the command line (`configs.training_parser`).
      many_members: a process that is alone makes a device of each core (`experiment.mesh`).

    Raises:
      ValueError: if some of the flags are missing, or the other processes are.
      PlatformError: if JAX cannot use this process's platform.
    """
    options = arguments.coordinator, arguments.num_processes, arguments.process_id
    if any(value is not None for value in options):
        if None in options:
            raise ValueError("--coordinator, --num-processes and --process-id go together")
        if not 0 <= options[2] < options[1]:
            raise ValueError(f"--process-id={options[2]} must lie in 0 ... {options[1] - 1}")
    try:
        with _saying_what_is_awaited():
            jax.distributed.initialize(*options)
    except ValueError as error:
        if "coordinator_address" not in str(error):
            raise
        # No flags, and no launcher that JAX knows: this process is alone.
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the other processes of this run were not found ({reason})") from error
    if many_members and not jax.distributed.is_initialized():
        device_per_core()
    check_platform()
    # Who is late for the first collective by half a minute ends them all, and data take longer.
    barrier("all processes are here")


@contextlib.contextmanager
def _saying_what_is_awaited() -> Iterator[None]:
    """Says it once, on stderr, if it takes long: JAX waits for five minutes in silence."""
    timer = threading.Timer(_SECONDS_OF_SILENCE, _say_what_is_awaited)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say_what_is_awaited() -> None:
    state = global_state
    if state.coordinator_address is None or state.num_processes is None:
        return  # the launcher itself is being asked
    who = f"process {state.process_id} of {state.num_processes}"
    if state.process_id == 0:
        whom = f"for the other processes, at {state.coordinator_address}"
    else:
        whom = f"for process 0, at {state.coordinator_address}"
        host = state.coordinator_address.rpartition(":")[0].strip("[]")
        try:
            socket.getaddrinfo(host, None)
        except OSError:
            whom += f" ({host} is a name that does not resolve here)"
    print(f"{who} is waiting {whom}", file=sys.stderr, flush=True)


def refuse(parser: Parser, error: UnreachableError) -> None:
    """Ends this process with what is said of a bucket that is gone.

    At once, if a checkpoint is still being saved there: an orderly exit would wait for orbax, and
    that for ten minutes for what will not come, or for TensorStore, which goes on trying.
    """
    try:
        parser.refuse(error)
    finally:
        for thread in threading.enumerate():
            if thread.name == "async_save" or type(thread).__module__.startswith("orbax"):
                os._exit(error.status)


def how_to_go_on(command: str) -> str:
    """Return how a person goes on with a run that was stopped, or who does it instead."""
    if message := os.environ.get("ROPEWALK_GOES_ON"):  # of slurm/job.sh and tpu/jobset.yaml
        return message
    if jax.process_count() > 1:
        return "To go on, start all processes again."
    return f"To go on, run the same command again{': ' + command if command else '.'}"


def is_primary_host() -> bool:
    """Return whether this process writes files and speaks to the user."""
    return jax.process_index() == 0


def barrier(reason: str) -> None:
    """Goes on once all processes are here; `reason` is the same in all of them."""
    multihost_utils.sync_global_devices(reason)


@contextlib.contextmanager
def refusing_together() -> Iterator[None]:
    """Refuse in all processes, with the same message, what is refused in one (a ValueError inside).

    Raises:
      ValueError: of the first process that has one.
    """
    refusal: ValueError | None = None
    try:
        yield
    except ValueError as error:
        refusal = error
    if jax.process_count() == 1:
        if refusal is not None:
            raise refusal
        return
    # Everyone takes part, also who has nothing to say: a collective waits for all processes. Only
    # arrays of one size travel, so the words go as bytes.
    message = np.zeros(_MESSAGE, np.uint8)
    text = str(refusal or "").encode()[:_MESSAGE]
    message[: len(text)] = np.frombuffer(text, np.uint8)
    for process, row in enumerate(multihost_utils.process_allgather(message)):
        if row.any():
            reason = bytes(row).rstrip(b"\0").decode(errors="replace")
            raise ValueError(
                reason if process == 0 else f"process {process}: {reason}"
            ) from refusal


def broadcast_from_primary(value: int) -> int:
    """A number as the first process has it."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def sum_over_hosts(value: int) -> int:
    """Sum over the processes of integers from 0 on, modulo 2^64."""
    # A digest has 64 bits and must not be rounded, so it travels as two words.
    halves = np.array([value % 2**64], np.uint64).view(np.uint32)  # JAX keeps 32 bits
    every = np.array(multihost_utils.process_allgather(halves))
    return int(every.view(np.uint64).sum(dtype=np.uint64))


def fetch(tree: Any) -> Any:
    """Arrays that lie over the devices of all hosts, whole and as numpy, on every host."""
    return multihost_utils.process_allgather(tree, tiled=True)


@contextlib.contextmanager
def failing_together(advice: str) -> Iterator[None]:
    """Ends this process at once on any error inside: others wait for it, or it for one of them.

    They notice within seconds where the network says so, else after 100 seconds without a sign of
    life (JAX's heartbeat), and end likewise: with status `RESTART_STATUS` where the devices, the
    network or a bucket say it, with 1 where the program does.
    """
    try:
        yield
    except BaseException as error:
        if jax.process_count() == 1:
            raise
        traceback.print_exc()
        print(
            f"process {jax.process_index()} of {jax.process_count()} stops: of the error above, "
            f"or because another process is gone. {advice}",
            file=sys.stderr,
            flush=True,
        )
        # Too little memory is of no other start's mending.
        lost = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXH" not in str(error)
        status = error.status if isinstance(error, UnreachableError) else RESTART_STATUS * lost or 1
        os._exit(status)  # an orderly exit would wait for the others
