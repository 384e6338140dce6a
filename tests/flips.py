"""Flips bits on disk and looks whether anybody notices: `python -m tests.flips --flips 1000`.

A run of `tiny` is stopped at its next to last checkpoint. Each flip changes one bit of one file of
a fresh copy of it: of its newest checkpoint, of the prepared tokens it reads, of a tokenizer. Then
the run is evaluated or resumed to its end, by turns, and what comes out is held against what comes
out of the unharmed copy, to the bit:

    same       the bit decided nothing
    recovered  the same came out, from an earlier checkpoint, and it was said
    refused    in one line
    rude       an error that is no such line, or the end of the process
    silent     something else came out: damage that nobody noticed

Exits with 1 if there is a rude or a silent one.
"""

import argparse
import collections
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import queue
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np

STEPS, EVERY = 20, 5
COMMAND = [
    "train.num_steps=20",
    f"train.save_every={EVERY}",
    "train.keep=3",
    "data.prepared_root=data",
]
# Each gets as many flips as the others, however small its files are.
GROUPS = {
    "parameters": "run/checkpoints/15/params/**/d/*",
    "optimizer state": "run/checkpoints/15/opt_state/**/d/*",
    "a checkpoint's other files": "run/checkpoints/15/**/*",
    "tokens": "data/*/*/*.array_record",
    "a store's index and starts": "data/*/*/*.[jn]*",
    "prepared.json and tokenizer": "data/*/*.*",
    "the run's tokenizer and config": "run/[tc]o*.*",
    "the run's held-out tokens": "run/held_out/*",
}


def resume() -> str:
    """Trains to the end; a digest of all that training leaves."""
    import orbax.checkpoint as ocp

    from configs import find_config
    from experiment import overrides
    from experiment.run import RunDirectory
    from training.loop import train
    from training.plan import make_plan

    run = RunDirectory("run")
    config = overrides.apply(find_config("tiny"), COMMAND)
    train(make_plan([config], [run]))
    digest = hashlib.sha256()
    path = (run.checkpoints_path / str(STEPS)).absolute()
    with ocp.StandardCheckpointer() as checkpointer:
        import jax

        for item in ("params", "opt_state"):
            for leaf in jax.tree.leaves(checkpointer.restore(path / item)):
                digest.update(np.asarray(leaf).tobytes())
    digest.update((path / "data/metadata").read_bytes())
    for row in run.read_metrics():
        timing = ("seconds", "tokens_per_second", "mfu")
        digest.update(json.dumps({k: v for k, v in row.items() if k not in timing}).encode())
    return digest.hexdigest()


def evaluate() -> str:
    """Asks the newest checkpoint; a digest of all answers."""
    from evals import rows, runner

    options = runner.Options(tasks=["kv", "perplexity"], documents=2)
    [(_, _, results)] = runner.evaluate(["run"], options)
    digest = hashlib.sha256(b"".join(np.asarray(results[name]).tobytes() for name in rows.SCHEMA))
    return digest.hexdigest()


ACTIONS = {"resume": resume, "evaluate": evaluate}


@contextlib.contextmanager
def copy_of(pristine: Path) -> Iterator[None]:
    """A fresh copy of everything as the current directory."""
    with tempfile.TemporaryDirectory() as folder:
        # The same modification times: a disk that rots tells nobody.
        shutil.copytree(pristine, folder, dirs_exist_ok=True)
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def flip(path: Path, generator: random.Random) -> str:
    """Changes one bit of a file and says which."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    index, bit = generator.randrange(len(content)), generator.randrange(8)
    content[index] ^= 1 << bit
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return f"{path}, bit {bit} of byte {index} of {len(content)}"


def outcome(action: str, unharmed: dict[str, str]) -> tuple[str, str]:
    """The outcome of an action: a word, and the output."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            digest = ACTIONS[action]()
    except ValueError as error:
        text = str(error)
        return ("refused" if "\n" not in text and len(text) <= 300 else "rude"), text
    except Exception:
        return "rude", traceback.format_exc()
    if digest != unharmed[action]:
        return "silent", output.getvalue()
    return ("recovered" if "DAMAGED" in output.getvalue() else "same"), output.getvalue()


def make(pristine: Path) -> dict[str, str]:
    """A run stopped before its end, with its data; what its actions give unharmed."""
    from configs import find_config
    from experiment import overrides
    from experiment.run import RunDirectory
    from training.loop import train
    from training.plan import make_plan

    os.chdir(pristine)
    config = overrides.apply(find_config("tiny"), COMMAND)
    train(make_plan([config], [RunDirectory("run")]))
    shutil.rmtree(f"run/checkpoints/{STEPS}")
    unharmed = {}
    for name, action in ACTIONS.items():
        with copy_of(pristine):
            unharmed[name] = action()
    return unharmed


def work(pristine: Path, unharmed: dict[str, str], numbers: range, seed: int, results) -> None:
    """Does some of the flips; each is said before it is done, since it may end the process."""
    for number in numbers:
        generator = random.Random(f"{seed} {number}")
        group = list(GROUPS)[number // len(ACTIONS) % len(GROUPS)]
        action = list(ACTIONS)[number % len(ACTIONS)]
        with copy_of(pristine):
            files = [
                p for p in sorted(Path().glob(GROUPS[group])) if p.is_file() and p.stat().st_size
            ]
            where = flip(generator.choice(files), generator)
            results.put((number, group, action, where, None))
            results.put((number, group, action, where, outcome(action, unharmed)))


def run_worker(
    pristine: Path, unharmed: dict, numbers: range, seed: int, work=work
) -> Iterator[tuple]:
    """Results of a process of its own, begun again after what ended it."""
    context = multiprocessing.get_context("spawn")
    while len(numbers):
        results = context.Queue()
        process = context.Process(target=work, args=(pristine, unharmed, numbers, seed, results))
        process.start()
        begun = None
        while True:
            try:
                result = results.get(timeout=1)
            except queue.Empty:
                if process.is_alive():
                    continue
                break
            if result[-1] is None:
                begun = result
            else:
                begun, numbers = None, numbers[1:]
                yield result
            if not len(numbers):
                break
        process.join()
        if begun is not None:
            yield (*begun[:-1], ("rude", f"the process ended with {process.exitcode}"))
            numbers = numbers[1:]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.flips", description=__doc__)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first flip")
    args = parser.parse_args()
    table = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        pristine = Path(folder)
        before = Path.cwd()
        with contextlib.redirect_stderr(io.StringIO()):
            unharmed = make(pristine)
        os.chdir(before)
        numbers = range(args.first, args.first + args.flips)
        for number, group, action, where, (word, output) in run_worker(
            pristine, unharmed, numbers, args.seed
        ):
            table[group, action, word] += 1
            if word in ("rude", "silent"):
                last = output.strip().splitlines()[-1] if output.strip() else "nothing said"
                print(f"{word}: flip {number}, {action}: {where}: {last[:200]}", flush=True)
    outcomes = "same", "recovered", "refused", "rude", "silent"
    print(f"{'':45s}" + "".join(f"{word:>11s}" for word in outcomes))
    for group in GROUPS:
        for action in ACTIONS:
            counts = "".join(f"{table[group, action, word]:11d}" for word in outcomes)
            print(f"{group + ', ' + action:45s}{counts}")
    bad = sum(count for (*_, word), count in table.items() if word in ("rude", "silent"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
