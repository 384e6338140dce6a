"""Kills at random moments, and two commands that run at once."""

import collections
import itertools
import random
import time
from collections.abc import Iterator

from tests.faults import commands
from tests.faults.runner import Runner, judge, run_undisturbed


def kill(runner: Runner, name: str, number: int, seed: int) -> collections.Counter:
    """Kill a command at random moments; after each kill it must end as an undisturbed one."""
    run_undisturbed(runner, name)  # the first one compiles
    began = time.monotonic()
    case, folder, command, expected, _ = run_undisturbed(runner, name)
    duration, counts = time.monotonic() - began, collections.Counter()
    rng = random.Random(f"{name} {seed}")
    for _ in range(number):
        commands.start(case, runner.shared, folder)
        moment = rng.uniform(0, duration)
        status, *_ = runner.wait(runner.start(command, folder), moment)
        outcome = judge(runner, command, folder, expected)
        if "WRONG" in outcome:
            print(f"{name} killed after {moment:.2f} s: {outcome}", flush=True)
        kind = "SIGKILL at a random moment" if status == "hangs" else "ended before its kill"
        counts[kind, outcome.partition(":")[0]] += 1
    return counts


def run_pairs(runner: Runner, names: list[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Start every pair of commands at once on one run; yield each pair and its outcome.

    Each must end well or refuse in one line. Then both run again, one after the other, and must
    leave what they leave without the other.
    """
    for first, second in itertools.combinations_with_replacement(names, 2):
        folder = runner.shared.parent / "pair"
        lines = [_on_one_run(runner, name, folder) for name in (first, second)]

        def run_in_turn(lines=lines, folder=folder) -> list[str]:
            ended = [runner.run(line, folder) for line in dict.fromkeys(lines)]
            return [_describe(status, output) for status, output, _ in ended]

        commands.start(commands.CASES["resume"], runner.shared, folder)
        if "WRONG" in (text := ", ".join(run_in_turn())):
            raise SystemExit(f"{first}, then {second}: {text}")
        expected = commands.contents(folder)
        commands.start(commands.CASES["resume"], runner.shared, folder)
        children = [runner.start(line, folder, name=str(i)) for i, line in enumerate(lines)]
        ends = [_describe(*runner.wait(child)[:2]) for child in children]
        ends += [text for text in run_in_turn() if "WRONG" in text]
        text = ", ".join(ends)
        # An evaluation may come before or after the save: the names of files must be equal, and
        # the content of the trained ones.
        actual = commands.contents(folder)
        trained = {name for name in expected if name.startswith(("run/checkpoints", "run/metrics"))}
        wrong = actual.keys() ^ expected | {n for n in trained if actual.get(n) != expected[n]}
        if wrong:
            text += f", WRONG: differs in {sorted(wrong)[:3]}"
        print(f"| {first} | {second} | {text} |", flush=True)
        yield (first, second), text


def _on_one_run(runner: Runner, name: str, folder) -> str:
    arguments = commands.CASES[name].arguments.replace("RUN", "FOLDER/run")
    return commands.fill(arguments, runner.shared, folder)


def _describe(status: int | str, output: str) -> str:
    last = (output.strip().splitlines() or [""])[-1]
    if status == 0:
        return "ends"
    if status == 2 and ": error: " in last and "Traceback" not in output:
        return "refused"
    return f"WRONG: status {status}: {last[:200]}"
