"""Damages compiled programs on the disk: `python -m tests.programs --damages 300`.

The train step of `tiny`, and another one with the same arguments, are compiled and kept. Each time
the stored program is damaged in place (JAX's key contains the folder, so a copy would not be read),
or the two are swapped. Then it is read again, makes two updates, and the results are compared, to
the bit:

    recompiled  the same numbers; the damage was reported
    unnoticed   the same numbers; the damage was not reported
    silent      other numbers
    error       an exception
    crash       the end of the process

Exits with 1 if a result is not `recompiled`.
"""

import argparse
import collections
import contextlib
import functools
import hashlib
import io
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from benchmarks.program import random_batch
from configs import find_config
from configs.changes import change
from experiment.compiled import keep_programs
from experiment.stages import split
from tests import flips
from training.step import init_state, member_arrays, train_step

PAGE = 4096
WORDS = "recompiled", "unnoticed", "silent", "error", "crash"


def _flip(content: bytearray, generator: random.Random) -> None:
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)


def _truncate(content: bytearray, generator: random.Random) -> None:
    del content[generator.randrange(len(content)) :]


def _zero_page(content: bytearray, generator: random.Random) -> None:
    start = generator.randrange(len(content)) // PAGE * PAGE
    end = min(start + PAGE, len(content))
    content[start:end] = bytes(end - start)


_CHANGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    "bit flip": _flip,
    "truncation": _truncate,
    "zeroed page": _zero_page,
}
DAMAGES = [*_CHANGES, "swap of two"]


def damage(kind: str, paths: Sequence[Path], generator: random.Random) -> None:
    """Damage the first of `paths`, or swap it with another one of them."""
    content = paths[0].read_bytes()
    if kind == "swap of two":
        other = generator.choice(paths[1:])
        paths[0].write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        changed = bytearray(content)
        _CHANGES[kind](changed, generator)
        paths[0].write_bytes(changed)


class Steps:
    """Two train steps with the same arguments: that of `tiny`, and with another weight decay."""

    def __init__(self, folder: Path):
        self._folder = folder
        tiny = find_config("tiny")
        state = jax.jit(functools.partial(init_state, tiny))(np.uint32(0))
        member = member_arrays(split(tiny)[:1])
        self._arguments = state, member, random_batch(tiny), np.int32(0)
        self._lowered, self.paths = [], []
        for weight_decay in (tiny.train.weight_decay, 0.5):
            config = change(tiny, train=dict(weight_decay=weight_decay))
            step = jax.jit(functools.partial(train_step, config))
            self._lowered.append(step.lower(*self._arguments))
        for index in range(2):
            before = set(folder.iterdir())
            self.digest(index)
            self.paths += set(folder.iterdir()) - before

    def digest(self, index: int) -> str:
        """Read a program or compile it, make two updates, and return a digest of the results."""
        jax.clear_caches()
        # Options, if only none of them: otherwise JAX returns the program that it has in memory.
        step = self._lowered[index].compile(compiler_options={})
        state, *rest = self._arguments
        digest = hashlib.sha256()
        for _ in range(2):
            state, scalars = step(state, *rest)
            for leaf in jax.tree.leaves((state, scalars)):
                digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()


def outcome(steps: Steps, expected: str) -> tuple[str, str]:
    """Compute with the program; return a word for what came out, and what was printed."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            digest = steps.digest(0)
    except Exception:
        return "error", traceback.format_exc()
    if digest != expected:
        return "silent", printed.getvalue()
    reported = "damaged compiled program" in printed.getvalue()
    return ("recompiled" if reported else "unnoticed"), printed.getvalue()


def work(folder: Path, unharmed: dict, numbers: range, seed: int, results) -> None:
    """Do some of the damages; report each before and after, since it may end the process."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    for path in folder.iterdir():  # what an ended process left
        path.unlink()
    keep_programs()
    steps = Steps(folder)
    stored = {path: path.read_bytes() for path in folder.iterdir()}
    expected = steps.digest(0)
    assert expected != steps.digest(1)
    for number in numbers:
        kind = DAMAGES[number % len(DAMAGES)]
        damage(kind, steps.paths, random.Random(f"{seed} {number}"))
        results.put((number, kind, None))
        results.put((number, kind, outcome(steps, expected)))
        for path, content in stored.items():
            path.write_bytes(content)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--damages", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first damage")
    args = parser.parse_args()
    table = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        numbers = range(args.first, args.first + args.damages)
        results = flips.run_worker(Path(folder), {}, numbers, args.seed, work)
        for number, kind, (word, printed) in results:
            word = "crash" if printed.startswith("the process ended") else word
            table[kind, word] += 1
            if word != WORDS[0]:
                print(f"{word}: {number}, {kind}: {printed.strip()[-300:]}", flush=True)
    print(f"{'':20s}" + "".join(f"{word:>11s}" for word in WORDS))
    for kind in DAMAGES:
        print(f"{kind:20s}" + "".join(f"{table[kind, word]:11d}" for word in WORDS))
    return int(any(table[key] for key in table if key[-1] != WORDS[0]))


if __name__ == "__main__":
    sys.exit(main())
