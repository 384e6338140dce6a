"""Kill commands at random moments, or damage the files that they read; compare what they leave.

    python -m tests.harm kills 60       ten kills of each command
    python -m tests.harm damages 500    a bit, a cut or a deletion in one file, then its reader

After a kill, the same command must leave what an undisturbed one leaves. After a damage, a command
must leave the same, or refuse in one line. Exits with 1 for any other outcome.
"""

import collections
import functools
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

from tests.damage import flip
from tests.in_process import call_any
from tests.offline import sitecustomize  # noqa: F401 - it blocks connections
from tests.training.helpers import SPLIT

ROOT = Path(__file__).parent.parent
_TINY = "tiny data.source=jsonl data.path=text.jsonl data.prepared_root=data train.num_steps=8"
_TINY += " train.save_every=2 train.keep=9 evals.tasks=[kv] evals.documents=4 " + " ".join(SPLIT)
# Each command, and what it makes; later ones read what earlier ones made.
COMMANDS = {
    "prepare": ("prepare --source jsonl --path text.jsonl --vocab-size 512 --out d", "d"),
    "train": (f"train.py {_TINY} --workdir run", "run"),
    "sweep": (f"sweep.py {_TINY} --workdir sweep model.rotary.base=10,99", "sweep"),
    "evaluate": ("evaluate.py run", "run/results.jsonl"),
    "export": ("export run exported", "exported"),
    "import": ("import exported imported --no-compare", "imported"),
}
_DATED = "prepare.json", "progress.json", "commit_success.txt"
_IGNORED = ("seconds", "tokens_per_second", "mfu", "date", "time", "git", "version", "question")


# Files to damage, and the command that reads them.
DAMAGES = {
    "parameters, evaluated": ("run/checkpoints/8/params/**/d/*", "evaluate"),
    "parameters, resumed": ("run/checkpoints/6/params/**/d/*", "train"),
    "any file of a checkpoint, resumed": ("run/checkpoints/6/**/*", "train"),
    "tokenizer and config.json": ("run/[ct]o*.*", "evaluate"),
    "prepared data": ("data/**/*", "train"),
    "export": ("exported/*[!d]", "import"),  # but README.md, which no command reads
}


def make(folder: Path) -> dict[str, float]:
    """Run all commands once in a new folder; return the seconds of each."""
    from tests.data.helpers import plain_text, write_jsonl

    folder.mkdir()
    seconds = {}
    write_jsonl(folder / "text.jsonl", [f"{i} {plain_text(i)} " * 9 for i in range(120)])
    for name, (command, _) in COMMANDS.items():
        start = time.monotonic()
        if run(command, folder).wait():
            raise SystemExit(f"{command} fails undisturbed:\n{(folder / 'output').read_text()}")
        seconds[name] = time.monotonic() - start
    return seconds


def run(command: str, folder: Path) -> subprocess.Popen:
    """Start a command in `folder`; its output goes to the file `output`."""
    first, *rest = shlex.split(command)
    program = [str(ROOT / first)] if first.endswith(".py") else ["-m", "ropewalk", first]
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            [sys.executable, *program, *rest],
            cwd=folder,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        )


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file that two executions of a command must share.

    Dates, rates, prose and `.part` files, which nothing reads, are left out, and names that contain
    hashes are shortened. The arrays of a checkpoint are compared by its digests.
    """
    digests = {}
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        name = _short(path.relative_to(folder).as_posix())
        is_ours = not re.search(r"commands.jsonl|\.(lock|part|damaged)|workers|content.json", name)
        if path.is_file() and is_ours:
            is_array = name.endswith(("/HASH", ".ocdbt", "_METADATA", "_sharding"))
            is_dated = path.suffix in (".npz", ".gz") or path.name in _DATED
            digests[name] = "" if is_array or is_dated else _digest(path)
    return digests


def _short(name: str) -> str:
    return re.sub(r"[0-9a-f]{20,}", "HASH", name)


def _digest(path: Path) -> str:
    def undated(fields: dict) -> dict:
        return {name: value for name, value in fields.items() if name not in _IGNORED}

    content = path.read_bytes()
    if path.suffix == ".jsonl" or path.name in ("metadata", "config.json"):
        parts = content.splitlines() if path.suffix == ".jsonl" else [content]
        values = [json.loads(part, object_hook=undated) for part in parts]
        content = json.dumps(values, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def kill(
    pristine: Path, number: int, rng: random.Random, seconds: dict[str, float]
) -> tuple[str, str]:
    """Kill one command, run it again, and return what was killed and the outcome."""
    name = list(COMMANDS)[number % len(COMMANDS)]
    command, output = COMMANDS[name]
    expected, folder = contents(pristine / output), Path.cwd()
    Path(output).unlink() if Path(output).is_file() else shutil.rmtree(output)
    start = time.monotonic()
    process = run(command, folder)
    moment = rng.uniform(0.2, 1) * seconds[name]
    while process.poll() is None and time.monotonic() < start + moment:
        time.sleep(0.005)
    kind = f"{name}, ended before its kill" if process.poll() is not None else name
    process.kill()
    process.wait()
    status = run(command, folder).wait()
    outcome = _compare(status, Path("output").read_text(), expected, Path(output))
    return kind, "WRONG: refused" if outcome == "refused" else outcome


def damage(pristine: Path, number: int, rng: random.Random) -> tuple[str, str]:
    """Damage one file, run its reader, and return what was damaged and the outcome."""
    name = list(DAMAGES)[number % len(DAMAGES)]
    files, reader = DAMAGES[name]
    command, output = COMMANDS[reader]
    expected = contents(pristine / output)
    if reader == "train":  # resumed for two more steps
        shutil.rmtree("run/checkpoints/8")
    else:
        shutil.rmtree(output)
    path = rng.choice([p for p in sorted(Path().glob(files)) if p.is_file() and p.stat().st_size])
    kind, size = rng.choice(("bit", "bit", "cut", "deleted")), path.stat().st_size
    if kind == "deleted" and reader == "import":  # the file is optional
        kind = "cut"
    position = rng.randrange(8 * size)
    if kind == "bit":
        flip(path, position)
    elif kind == "cut":
        times = path.stat()
        os.truncate(path, position // 8)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # a disk that rots says nothing
    else:
        path.unlink()
    status, text = call_any(*shlex.split(command))
    own = path.relative_to(output).as_posix() if path.is_relative_to(output) else ""
    outcome = _compare(status, text, expected, Path(output), _short(own))
    return name, outcome if "WRONG" not in outcome else f"{outcome} ({kind} {position} of {path})"


def _compare(
    status: int, text: str, expected: dict[str, str], output: Path, besides: str = ""
) -> str:
    last = (text.strip().splitlines() or [""])[-1]
    refuses = status == 2 and ": error: " in last and "Traceback" not in text
    left = contents(output)
    names = (left.keys() | expected) - {besides}
    different = sorted(name for name in names if left.get(name) != expected.get(name))
    if status and not refuses:
        return f"WRONG: status {status}: {last[:200]}"
    if not different:  # an import refuses a folder that is complete
        return "recovered" if "DAMAGED" in text else "same"
    return "refused" if refuses else f"WRONG: differs in {different[:3]}"


def main(kind: str, count: int, seed: int = 0) -> int:
    """Print a table of the outcomes of `count` kills or damages; return the exit status."""
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        pristine, before = Path(temporary) / "pristine", Path.cwd()
        os.environ |= {
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_COMPILATION_CACHE_DIR": f"{temporary}/compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        # Damages are read in this process, which has imported JAX: the same bits.
        jax.config.update("jax_disable_most_optimizations", True)
        if kind == "kills":
            make(Path(temporary) / "first")  # compiled programs are kept: later ones are faster
        seconds = make(pristine)
        harm = {"kills": functools.partial(kill, seconds=seconds), "damages": damage}[kind]
        for number in range(count):
            copy = Path(temporary) / str(number)
            shutil.copytree(pristine, copy)
            os.chdir(copy)
            name, outcome = harm(pristine, number, random.Random(f"{seed} {number}"))
            os.chdir(before)
            shutil.rmtree(copy)
            if "WRONG" in outcome:
                print(f"{name} {number}: {outcome}", flush=True)
            counts[name, outcome.partition(":")[0]] += 1
    for (name, outcome), number in sorted(counts.items()):
        print(f"{number:5} {name}: {outcome}")
    return int(any(outcome == "WRONG" for _, outcome in counts))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("kills", "damages"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:])))
