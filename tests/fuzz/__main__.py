"""Fuzz readers, guided by coverage: python -m tests.fuzz [TARGET...] --seconds 60

`make fuzz` installs atheris and runs all targets. A line of the tally is printed for each target;
inputs that are findings are written to --findings, and belong into tests/fuzz/test_regressions.py.
"""

import argparse
import copy
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import atheris

PACKAGES = ["utils", "model", "data", "experiment", "evals", "interop", "theory", "reporting"]
PACKAGES += ["studies", "configs"]
with atheris.instrument_imports(include=PACKAGES):
    from tests.fuzz import outcome, targets

GIB = 2**30
HOSTILE: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        10**9,
        2**31,
        2**53,
        2**62,
        2**64,
        10**400,
        0.5,
        1e308,
        -1e308,
    ),
    *(float("nan"), float("inf"), "", "x", "\x1b[2J", "<b>", "../..", "/etc/passwd", "\ud800"),
    *("a" * 400, [], {}, [[]], ["x"], [2**60], {"a": 1}, [1] * 300, {"rope_type": "yarn"}),
]


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change a value of a JSON line, or bytes."""
    rng = random.Random(seed)
    lines = data.split(b"\n")
    index = rng.randrange(len(lines))
    if rng.random() < 0.8:
        try:
            value = json.loads(lines[index])
            for _ in range(rng.choice((1, 1, 2, 4))):
                value = mutate_value(value, rng)
            lines[index] = json.dumps(value).encode()
            if len(changed := b"\n".join(lines)) <= max_size:
                return changed
        except (ValueError, RecursionError):
            pass
    return atheris.Mutate(data, max_size)


def mutate_value(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one part replaced, removed, repeated or changed a little."""
    is_list = isinstance(value, list)
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if is_list else []
    if keys and rng.random() < 0.9:
        key = rng.choice(keys)
        if rng.random() < 0.1:
            del value[key]
        elif is_list and rng.random() < 0.1:
            value.append(value[key])
        else:
            value[key] = mutate_value(value[key], rng)
        return value
    if isinstance(value, int | float) and rng.random() < 0.3:
        return rng.choice((-value, 2 * value, value + 1, value - 1))
    return copy.deepcopy(rng.choice(HOSTILE))


def fuzz(target: targets.Target, folder: Path, state: dict[str, Any], arguments) -> None:
    """Fuzz in this process, which ends here; keep `state` in a file of `folder`."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * GIB, used + 2 * GIB))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(seed)

    def save() -> None:
        state["seconds"] = round(time.monotonic() - start, 1)
        (folder / "state.json").write_text(json.dumps(state))

    def one(data: bytes) -> None:
        state["executions"] += 1
        finding = outcome.problem(target, data)
        if finding and finding not in state["findings"]:
            state["findings"].append(finding)
            arguments.findings.mkdir(parents=True, exist_ok=True)
            path = arguments.findings / f"{state['target']}-{len(state['findings'])}"
            path.write_bytes(data)
            save()
        if state["executions"] % 256 == 0:
            save()
            if state["seconds"] > arguments.seconds:
                os._exit(0)

    start = time.monotonic()
    options = ["-verbosity=0", "-max_len=16384", "-handle_alrm=0", f"-artifact_prefix={folder}/"]
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    with outcome.guarded(folder.parent):  # where targets share files
        atheris.Setup([sys.argv[0], str(corpus), *options], one, custom_mutator=mutate)
        atheris.Fuzz()


def main() -> None:
    """Fuzz the targets of the command line, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60, help="time of each target")
    parser.add_argument("--findings", type=Path, default=Path("runs/fuzz"))
    arguments = parser.parse_args()
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=root) as shared:
        known = targets.targets(Path(shared))
        for name in arguments.targets or known:
            folder = Path(tempfile.mkdtemp(dir=shared))
            state = {"target": name, "executions": 0, "seconds": 0.0, "findings": []}
            if (pid := os.fork()) == 0:
                try:
                    fuzz(known[name], folder, state, arguments)
                except BaseException as error:  # stderr is closed, and atheris hangs in exit
                    state["error"] = f"{type(error).__name__}: {error}"
                    (folder / "state.json").write_text(json.dumps(state))
                os._exit(1)
            _, status = os.waitpid(pid, 0)
            if (folder / "state.json").exists():
                state = json.loads((folder / "state.json").read_text())
            print(json.dumps(state | {"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
