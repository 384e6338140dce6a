"""Inject a fault at the n-th call of the file system of a command; run it again; compare.

    python -m tests.faults                              every command, 20 faults each
    python -m tests.faults --commands train --faults 0  a fault at every call
    python -m tests.faults --power                      power losses instead of faults
    python -m tests.faults --kills                      kills at random moments
    python -m tests.faults --pairs                      every pair of commands at once on one run
    python -m tests.faults --conditions                 a full disk, little memory, no locks, ...

A fault is an error of the call (EIO, ENOSPC, EMFILE, EINTR) or SIGKILL. Then the same command runs
without a fault. It must leave what an undisturbed execution leaves, or refuse in one line. With
--power, the disk instead returns to what was synced before the call. Needs a C compiler, and
--conditions needs root.
"""

import argparse
import collections
import datetime
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults import commands, conditions, power, processes
from tests.faults.runner import Runner, judge, run_undisturbed

ERRORS = (-1, errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR)
_CORRECT = "same", "refused", "not reached"


def _choose(count: int, wanted: int) -> list[int]:
    """Return `wanted` numbers from 1 to `count`, evenly spread; all for 0."""
    if not wanted or wanted >= count:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})


def inject(runner: Runner, name: str, wanted: int, offset: int) -> collections.Counter:
    """Inject faults into one command; return counts of (kind, outcome)."""
    case, folder, command, expected, count = run_undisturbed(runner, name)
    counts = collections.Counter()
    for index, n in enumerate(_choose(count, wanted)):
        error = ERRORS[(index + offset) % len(ERRORS)]
        kind = "SIGKILL" if error == -1 else errno.errorcode[error]
        commands.start(case, runner.shared, folder)
        status, output, reached = runner.run(command, folder, n, error)
        if error != -1 and status != "hangs" and reached < n:  # threads differ in their order
            counts[kind, "not reached"] += 1
            continue
        if status == 0 and commands.contents(folder) == expected:
            outcome = "same"
        else:
            outcome = judge(runner, command, folder, expected)
        if error != -1 and ("Traceback" in output or status == "hangs"):
            last = output.strip().splitlines()[-1][:160]
            outcome += f"; the fault itself: {'hangs' if status == 'hangs' else last}"
        if outcome not in _CORRECT:
            print(f"{name} call {n} of {count} {kind}: {outcome}", flush=True)
        counts[kind, _short(outcome)] += 1
    print(f"{name}: {count} calls, {sum(counts.values())} faults", flush=True)
    return counts


def _short(outcome: str) -> str:
    if outcome in _CORRECT:
        return outcome
    return "WRONG" if "WRONG" in outcome else "noisy"  # noisy: a traceback, or a hanging process


def lose_power(runner: Runner, name: str, wanted: int) -> collections.Counter:
    """Replay a command up to some calls as a disk that lost what was not synced."""
    log = runner.shared.parent / f"{name}.log"
    case, folder, command, expected, _ = run_undisturbed(runner, name, log)
    calls, counts = power.read_log(log), collections.Counter()
    commands.start(case, runner.shared, folder)
    before = power.read_folder(folder)
    known: dict[int, str] = {}  # outcomes by state: many calls change nothing
    for n in _choose(len(calls), wanted):
        for policy in power.POLICIES:
            files = power.replay(before, calls[:n], policy, folder)
            state = hash(tuple(sorted(files.items())))
            if state not in known:
                power.write_folder(folder, files)
                known[state] = judge(runner, command, folder, expected)
                if "WRONG" in known[state]:
                    print(f"{name} call {n} of {len(calls)}, {policy}: {known[state]}", flush=True)
            counts[policy, known[state].partition(":")[0]] += 1
    print(f"{name}: {len(calls)} logged calls, {len(known)} states of the disk", flush=True)
    return counts


def main() -> None:
    """Run the command line; print and record a table of outcomes."""
    parser = argparse.ArgumentParser(
        "python -m tests.faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--commands", default=",".join(commands.CASES), help="default: all")
    parser.add_argument("--faults", type=int, default=20, help="for each command; 0: at every call")
    parser.add_argument(
        "--offset", type=int, default=0, help="of the kinds of faults; seed of kills"
    )
    for mode in ("power", "kills", "pairs", "conditions"):
        parser.add_argument(f"--{mode}", action="store_true", help="see above")
    parser.add_argument("--tally", type=Path, help="add the counts to this file")
    arguments = parser.parse_args()
    names = arguments.commands.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ |= {
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_COMPILATION_CACHE_DIR": f"{temporary}/compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        shared = Path(temporary) / "shared"
        shared.mkdir()
        runner = Runner(shared, names)

        def run_shared(text: str) -> None:
            status, output, _ = runner.run(commands.fill(text, shared, shared), shared)
            if status:
                raise SystemExit(f"{text}:\n{output}")

        commands.prepare_shared(shared, names, run_shared)
        rows = [
            f"| {name} | {kind} | {outcome} | {number} |"
            for name, kind, outcome, number in _outcomes(runner, arguments)
        ]
        print("| command | fault | outcome | number |", "|---|---|---|---|", *rows, sep="\n")
    if arguments.tally:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.check_output(command, cwd=commands.ROOT, text=True).strip()
        date = datetime.date.today().isoformat()
        with arguments.tally.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"commit": commit, "date": date, "rows": rows}) + "\n")
    sys.exit(any("WRONG" in row or "noisy" in row for row in rows))


def _outcomes(runner: Runner, arguments: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    """Yield command, fault, outcome and number for each row of the table."""
    names, number = arguments.commands.split(","), arguments.faults
    if arguments.pairs:
        for (first, second), outcome in processes.run_pairs(runner, names):
            yield first, f"with {second}", outcome, 1
        return
    for name in names:
        if arguments.conditions:
            for condition, outcome in conditions.run_all(runner, name):
                yield name, condition, outcome, 1
            continue
        if arguments.power:
            counts = lose_power(runner, name, number)
        elif arguments.kills:
            counts = processes.kill(runner, name, number, arguments.offset)
        else:
            counts = inject(runner, name, number, arguments.offset)
        for (kind, outcome), count in sorted(counts.items()):
            yield name, kind, outcome, count


if __name__ == "__main__":
    main()
