"""Several processes as one run: on a TPU slice, under SLURM, or started one by one.

Every process runs the same program on the same files. Only the first one writes files other than
checkpoints and prints messages. For a lone process nothing here has an effect.
"""

import argparse
import contextlib
import hashlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ropewalk.experiment.devices import check_platform, device_per_core
from ropewalk.utils.command_line import Parser
from ropewalk.utils.errors import RESTART_STATUS, UnreachableError
from ropewalk.utils.manifest import digest, file_entries
from ropewalk.utils.messages import one_line

# Bytes of a message from one process to the others.
_MESSAGE = 1024
# Longer than processes that were started together need to find each other.
_SECONDS_OF_SILENCE = 10.0


def initialize(arguments: argparse.Namespace, *, many_members: bool = False) -> None:
    """Find the other processes of the run; call it before JAX is used.

    Args:
      arguments: arguments of the command line (`utils.command_line.add_process_flags`).
      many_members: whether a lone process makes a device of each core.

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
    # JAX waits for five minutes in silence.
    line = "waiting for the other processes of this run"
    options_of_print = {"file": sys.stderr, "flush": True}
    timer = threading.Timer(_SECONDS_OF_SILENCE, print, (line,), options_of_print)
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(*options)
    except ValueError as error:
        if "coordinator_address" not in str(error):
            raise
        # No flags, and no launcher that JAX knows: this process is alone.
    except RuntimeError as error:
        # `%run` of a notebook, after another command: no flags, and JAX is already in use.
        if options == (None, None, None) and "must be called before" in str(error):
            return
        reason = str(error).splitlines()[0]
        raise ValueError(f"the other processes of this run were not found ({reason})") from error
    finally:
        timer.cancel()
    if many_members and not jax.distributed.is_initialized():
        device_per_core()
    check_platform()
    # A process that is half a minute late for the first collective would end all of them.
    barrier("all processes are here")


def refuse(parser: Parser, error: UnreachableError) -> None:
    """Exit with the message about a bucket that failed.

    If a checkpoint is still being saved there, exit at once: an orderly exit would wait ten minutes
    for orbax, or for TensorStore, which keeps trying.
    """
    try:
        parser.refuse(error)
    finally:
        for thread in threading.enumerate():
            if thread.name == "async_save" or type(thread).__module__.startswith("orbax"):
                os._exit(error.status)


def how_to_go_on(command: str) -> str:
    """Return the advice on how a stopped run is resumed."""
    if message := os.environ.get("ROPEWALK_GOES_ON"):  # of slurm/job.sh and tpu/jobset.yaml
        return message
    if jax.process_count() > 1:
        return "To go on, start all processes again."
    return f"To go on, run the same command again{': ' + command if command else '.'}"


def is_primary_host() -> bool:
    """Return whether this process writes files and prints messages."""
    return jax.process_index() == 0


def barrier(reason: str) -> None:
    """Wait for all processes; `reason` is the same in all of them."""
    multihost_utils.sync_global_devices(reason)


@contextlib.contextmanager
def refusing_together() -> Iterator[None]:
    """Raise the error of one process in all of them, with the same message.

    Raises:
      ValueError: the error of the first process that has one; an error of another kind is also
        raised as it is, in its own process.
    """
    refusal: Exception | None = None
    try:
        yield
    except Exception as error:
        if jax.process_count() == 1:
            raise
        refusal = error
    if jax.process_count() == 1:
        return
    # A collective needs all processes, and arrays of one size, so the message is sent as bytes.
    text = "" if refusal is None else str(refusal) or type(refusal).__name__
    text = text.encode()[:_MESSAGE].ljust(_MESSAGE, b"\0")
    message = np.frombuffer(text, np.uint8)
    for process, row in enumerate(multihost_utils.process_allgather(message)):
        if row.any():
            if refusal is not None and not isinstance(refusal, ValueError):
                raise refusal
            reason = bytes(row).rstrip(b"\0").decode(errors="replace")
            raise ValueError(
                reason if process == 0 else f"process {process}: {reason}"
            ) from refusal


_ROOT = Path(__file__).resolve().parents[1]


def _digest_code(root: Path = _ROOT) -> str:
    """Return a digest of the files that training may read; uncommitted edits count too."""
    folders = [path.parent for path in root.glob("*/__init__.py")]
    paths = (path for folder in folders for path in folder.rglob("*"))
    return digest(file_entries(root, (p for p in paths if p.suffix in (".py", ".toml"))))


def check_alike(config: object) -> None:
    """Check that processes do not differ in code, config or JAX.

    Args:
      config: what each process trains; its `repr` is compared.

    Raises:
      ValueError: in all processes, naming the first that differs from process 0.
    """
    if jax.process_count() > 1:
        check_equal({"code": _digest_code()}, "put the same files on every host")
        check_equal({"a config": config}, "start all with the same command")
        version = {"a version of JAX": jax.__version__}
        check_equal(version, "install requirements.lock on every host")


def check_equal(values: Mapping[str, object], remedy: str) -> None:
    """Check that processes do not differ in values.

    Args:
      values: by name, the same names in all processes; the `repr` of each is compared.
      remedy: what the user should do.

    Raises:
      ValueError: in all processes, naming the first value and process that differ from process 0.
    """
    if jax.process_count() == 1:
        return
    for name, value in values.items():
        sha256 = hashlib.sha256(repr(value).encode()).digest()
        digests = np.asarray(multihost_utils.process_allgather(np.frombuffer(sha256, np.uint32)))
        if processes := np.flatnonzero((digests != digests[0]).any(axis=1)).tolist():
            raise ValueError(f"process {processes[0]} has {name} other than process 0; {remedy}")


def broadcast_from_primary(value: int) -> int:
    """Return the value of the first process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def sum_over_hosts(value: int) -> int:
    """Sum integers >= 0 over the processes, modulo 2^64."""
    # A digest has 64 bits and must not be rounded, so it travels as two words.
    halves = np.array([value % 2**64], np.uint64).view(np.uint32)  # JAX keeps 32 bits
    every = np.array(multihost_utils.process_allgather(halves))
    return int(every.view(np.uint64).sum(dtype=np.uint64))


def merge(array: np.ndarray) -> np.ndarray:
    """Return an array of which each process has filled a part, and left 0 in the rest."""
    if jax.process_count() == 1:
        return array
    # As bytes, because JAX rounds float64.
    every = multihost_utils.process_allgather(np.ascontiguousarray(array).view(np.uint8))
    return np.asarray(every).max(axis=0).view(array.dtype)


def fetch(tree: Any) -> Any:
    """Return arrays that are sharded over all hosts as full numpy arrays, on every host."""
    return multihost_utils.process_allgather(tree, tiled=True)


@contextlib.contextmanager
def failing_together(advice: str) -> Iterator[None]:
    """End this process at once after any error inside, because processes wait for each other.

    The others notice within seconds if the network reports it, else after 100 seconds without a
    heartbeat, and end too. The status is `RESTART_STATUS` after errors of devices, the network or a
    bucket, and 1 after errors of the program.
    """
    try:
        yield
    except BaseException as error:
        if jax.process_count() == 1:
            raise
        # A restart does not help against too little memory.
        lost = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXH" not in str(error)
        if not lost and not isinstance(error, UnreachableError):
            traceback.print_exc()
        print(
            f"process {jax.process_index()} of {jax.process_count()} stops, because of an error or "
            f"because another process is gone ({one_line(str(error), 120)}). {advice}",
            file=sys.stderr,
            flush=True,
        )
        status = error.status if isinstance(error, UnreachableError) else RESTART_STATUS * lost or 1
        os._exit(status)  # an orderly exit would wait for the others
