"""Shell lines of the page: what made its rows, and what would make those that are not there."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import evals
from data.tokenizer import Tokenizer
from evals.tasks.fixed_target import FIRST_CONTEXT
from evals.tasks.needle import Needle
from experiment.run import RunDirectory, find_runs, read_sweep
from reporting import curves, heat_maps, text
from reporting.members import Member

_VARIANTS = "trained,dynamic_yarn,dynamic_ntk_aware"


def command(program: str, *arguments: object) -> str:
    """A shell line."""
    return " ".join(["python", program, *map(_quoted, map(str, arguments))])


def _quoted(argument: str) -> str:
    """As a shell wants it; in double quotes, which read better, where it has single ones."""
    plain = not re.search(r'["$`\\!]', argument)
    return f'"{argument}"' if "'" in argument and plain else shlex.quote(argument)


def train(path: Path) -> str:
    """What makes the run or sweep directory `path`."""
    if (path / "config.json").exists():
        record = json.loads((path / "config.json").read_text(encoding="utf-8"))
        name = RunDirectory(path).config.name
        return command("train.py", name, "--workdir", path, *record["overrides"])
    sweep = read_sweep(path)
    return command("sweep.py", sweep["config"], "--workdir", path, *sweep["overrides"])


def repeat(dirs: Sequence[Path], report: str) -> list[str]:
    """Trains, evaluates and reports again: the lines that were typed, as far as runs hold them."""
    training, evaluation = [], []
    for path in dirs:
        runs = find_runs([path])
        typed = [_requoted(line) for run in runs for line in run.read_commands()]
        evaluated = [line for line in typed if line.startswith("python evaluate.py ")]
        training += [line for line in typed if line not in evaluated] or [train(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [command("evaluate.py", path)]
        evaluation += evaluated
    evaluation = evaluation or [command("evaluate.py", *dirs)]
    return list(dict.fromkeys([*training, *evaluation, _requoted(report)]))


def _requoted(line: str) -> str:
    _, program, *arguments = shlex.split(line)
    return command(Path(program).name, *arguments)


def missing(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """What the configs ask for and is not there yet, each with the command that makes it."""
    training = " && ".join(map(train, dirs))
    evaluation = command("evaluate.py", *dirs)
    untrained, unasked, no_loss = [], [], []
    no_task: dict[str, list[str]] = {}
    for member in members:
        if member.superseded:  # asked for with --step, or not at all
            continue
        trained = any(run.steps() for run in member.runs)
        if not member.own:
            (unasked if trained else untrained).append(member.label)
        else:
            asked = {evals.parse(task) for task, _ in member.own}
            for name in member.config.evals.tasks:
                task = evals.parse(name)
                if task not in asked and (_reads_text(member) or task.kind == "retrieval"):
                    no_task.setdefault(name, []).append(member.label)
        if trained and not member.losses:
            no_loss.append(member.label)
    found = [
        (untrained, "No checkpoint yet", training),
        (no_loss, "No training metrics yet", training),
        (unasked, "Not evaluated yet", evaluation),
    ]
    for name, who in no_task.items():
        found.append((who, f"No {name} yet", command("evaluate.py", *dirs, "--tasks", name)))
    return [(f"{what}: {_names(who, members)}. Run:", line) for who, what, line in found if who]


def _names(who: Sequence[str], members: Sequence[Member]) -> str:
    all_of_many = len(who) == len(members) > 4
    return f"all {len(who)} members" if all_of_many else ", ".join(who)


def _reads_text(member: Member) -> bool:
    return member.config.data.source != "retrieval"


def further(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """Figures that nobody asked for yet, each with the command that measures it."""
    if not any(member.own for member in members):
        return []
    length = max(member.trained_length for member in members)

    def ask(*arguments: object) -> str:
        return command("evaluate.py", *dirs, *arguments)

    found = []
    if not curves.by_length_tasks(members):
        lengths = f"{length},{2 * length},{4 * length}"
        found.append(("Contexts longer than the trained one.", ask("--lengths", lengths)))
    if not heat_maps.matrix_keys(members):
        line = ask("--lengths", f"{length},{2 * length}", "--rotary", _VARIANTS)
        found.append(("Other schedules than the trained one: a matrix.", line))
    shortest = _shortest_needle(members, length)
    if shortest and not heat_maps.depth_tasks(members):
        line = ask("--tasks", "needle", "--lengths", f"{shortest},{2 * shortest}")
        found.append(("Needles by length and depth.", line))
    if not all(map(_reads_text, members)):
        return found
    if length >= 2 * FIRST_CONTEXT and not curves.context_gain_keys(members):
        line = ask("--tasks", f"fixed_target(target={length // 2})", "--lengths", length)
        found.append(("What more context is worth to the same tokens.", line))
    if not curves.copy_gain_lengths(members):
        line = ask("--tasks", "lagcopy(text=natural),lagcopy(text=control)", "--lengths", length)
        found.append(("What a text is worth to its own repetition, by lag.", line))
    if not text.su_tables(members):
        lags = "repeated,repeated(lag=trained),repeated(lag=half)"
        line = (
            f"{ask('--tasks', 'repeated', '--lengths', length)} && "
            f"{ask('--tasks', lags, '--lengths', 4 * length)}"
        )
        found.append(("Tokens guessed right where a text is said again.", line))
    if not text.step1_lengths(members):
        line = ask("--step1", "base=1e2,1e3,1e4,1e5,1e6", "--lengths", 2 * length)
        found.append(("The first loss under other bases, before any update.", line))
    return found


def _shortest_needle(members: Sequence[Member], length: int) -> int | None:
    """The trained length, or the first of its doubles that holds a needle; None if unknown."""
    member = members[0]
    path = member.runs[0].tokenizer_path
    if not path.exists():
        return None
    tokenizer = Tokenizer(path)
    for doubled in (length << octave for octave in range(6)):
        try:
            Needle().documents(member.config, tokenizer, doubled, range(1))
        except ValueError:
            continue
        return doubled
    return None
