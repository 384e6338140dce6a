"""Labels of members: the settings in which they differ, independent of run directory names."""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ropewalk.experiment.config import PATH_FIELDS, ExperimentConfig, is_operational
from ropewalk.experiment.dotted import flatten_values
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.rotary import Pattern
from ropewalk.utils.figures import format_value
from ropewalk.utils.messages import counted

_ROTARY, _NONE = "model.rotary", "none"


def setting(config: ExperimentConfig) -> dict[str, str]:
    """Return the fields that identify a member: all that affect its numbers, except the seeds."""
    # Seeds that start from seeds of another run have different paths in `start_from`.
    start = config.start_from and re.sub(r"\bseed=\d+", "", config.start_from)
    flat = flatten_values(dataclasses.replace(config, start_from=start))
    seeds = ("seed", "data.seed")
    return {k: value for k, value in flat.items() if k not in seeds and not is_operational(k)}


def labels(configs: Sequence[ExperimentConfig], sweeps: Sequence[str] = ()) -> list[str]:
    """Return one label per config, such as `base=10`, `rotary=nope` or `base=10000,window=32`.

    Labels have the fewest fields that distinguish all configs, the rotary variant first, paths only
    where nothing else differs, and the fields of the model in which a few differ from most, such as
    a window. A field that is none, such as no window, is omitted.

    Args:
      configs: of the members.
      sweeps: path of each member's sweep, "" without one. If all have one, and not the same, a
        field that is constant within each is in no label, and equal labels end with their sweep.
    """
    settings = _settings(configs)
    paths = {*sweeps} if all(sweeps) else set()
    groups = [[v for v, s in zip(settings, sweeps, strict=True) if s == path] for path in paths]

    def count_distinct(fields: Sequence[str], among: Sequence[dict[str, str]] = settings) -> int:
        return len({tuple(values.get(field) for field in fields) for values in among})

    fields = list(dict.fromkeys(field for values in settings for field in values))
    if groups[1:]:
        fields = [f for f in fields if any(count_distinct([f], group) > 1 for group in groups)]
    chosen = [_ROTARY] if count_distinct([_ROTARY]) > 1 else []
    for names in ([field for field in fields if field not in PATH_FIELDS], fields):
        while count_distinct(chosen) < count_distinct([*chosen, *names]):
            chosen.append(max(names, key=lambda field: count_distinct([*chosen, field])))
    for field in fields:
        count = collections.Counter(values.get(field) for values in settings).most_common(1)[0][1]
        differs = field.startswith("model.") and len(settings) / 2 < count < len(settings)
        differs &= field not in chosen
        others = [name for name in chosen if name != _ROTARY]  # may already say the same
        if differs and count_distinct([*others, field]) > count_distinct(others):
            chosen.append(field)
    # So that the name of a member in a larger report begins with its name in a smaller one.
    chosen.sort(key=lambda f: (f != _ROTARY, f in PATH_FIELDS, f != _ROTARY and fields.index(f)))
    for field in set(chosen) & set(PATH_FIELDS):
        shortened = _shorten([values[field] for values in settings])
        settings = [{**v, field: path} for v, path in zip(settings, shortened, strict=True)]
    names = [
        ",".join(
            values[field] if field == _ROTARY else f"{field.rpartition('.')[2]}={values[field]}"
            for field in chosen
            if values.get(field, _NONE) != _NONE
        )
        or values[_ROTARY]
        for values in settings
    ]
    if not groups[1:]:
        return names
    return [
        f"{name},sweep={folder}" if names.count(name) > 1 else name
        for name, folder in zip(names, _shorten(sweeps), strict=True)
    ]


def as_words(label: str) -> str:
    """Return a label as words: `base=1e6,num_heads=4` as `base 1e6, 4 heads`."""
    name, bracket, state = label.partition(" (")
    words = []
    for part in re.split(r",(?![^()\[\]]*[)\]])", name):  # outside brackets
        part, _, step = part.partition("@")
        field, equals, value = part.partition("=")
        if field == "num_heads":
            part = counted(int(value), "heads")
        elif part == "rotary=nope":
            part = "no rotation"
        elif equals and field.isidentifier():
            number = re.fullmatch(r"[\d.]+(e[+-]?\d+)?", value)
            value = format_value(float(value)) if number and float(value) else value
            part = value if field == "rotary" else f"{field.replace('_', ' ')} {value}"
        words.append(f"{part} at step {step}" if step else part)
    return ", ".join(words) + bracket + state


def sweep_of(run: RunDirectory) -> str:
    """Return the path of a run's sweep, "" without one."""
    folder = run.path.absolute().parent
    return str(folder) if (folder / "sweep.json").exists() else ""


def _shorten(paths: Sequence[str]) -> list[str]:
    """Return paths without the folders with which all of them begin."""
    parts = [Path(path).parts for path in paths if path != _NONE]
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))
    depth = min(len(list(shared)), *(len(names) - 1 for names in parts))
    return [path if path == _NONE else str(Path(*Path(path).parts[depth:])) for path in paths]


def name_runs(runs: Sequence[RunDirectory], configs: Sequence[ExperimentConfig]) -> list[str]:
    """Return a name per run: the fields in which their configs differ, seeds included.

    A config is that of the evaluated stage. A single run has the name of its directory; runs of
    equal configs have their paths.
    """
    keys = [(run.path, config) for run, config in zip(runs, configs, strict=True)]
    distinct = list(dict.fromkeys(keys))
    if len({path for path, _ in distinct}) < 2:
        return [run.name for run in runs]
    sweeps = {run.path: sweep_of(run) for run in runs}
    texts = labels([config for _, config in distinct], [sweeps[path] for path, _ in distinct])
    names = dict(zip(distinct, texts, strict=True))
    fields: tuple[Callable[[tuple[Path, ExperimentConfig]], str], ...] = (
        lambda key: f",seed={key[1].seed}",
        lambda key: f",data.seed={key[1].data.seed}",
        lambda key: f" ({key[0]})",
    )
    for text in fields:
        for name in [
            name for name, count in collections.Counter(names.values()).items() if count > 1
        ]:
            equal = [key for key in distinct if names[key] == name]
            if len(set(map(text, equal))) > 1:
                names |= {key: name + text(key) for key in equal}
    return [names[key] for key in keys]


def _settings(configs: Sequence[ExperimentConfig]) -> list[dict[str, str]]:
    """Return the setting of each config, with the rotary variant in its short form."""
    variants = _short_variants([config.model.rotary for config in configs])
    return [
        {**setting(config), _ROTARY: variant}
        for config, variant in zip(configs, variants, strict=True)
    ]


def describe_seeds(configs: Sequence[ExperimentConfig]) -> str:
    """Return the number of seeds and what they vary: `3 seeds, of initialization and rows`."""
    pairs = {(config.seed, config.data.seed) for config in configs}
    initial, rows = (sorted(set(seeds)) for seeds in zip(*pairs, strict=True))
    if len(pairs) == 1:
        return "1 seed"
    varied = "initialization and rows"
    if len(rows) == 1:
        varied = f"initialization only (data.seed={rows[0]})"
    elif len(initial) == 1:
        varied = f"rows only (seed={initial[0]})"
    return f"{len(pairs)} seeds, of {varied}"


def _short_variants(variants: Sequence[Pattern]) -> list[str]:
    """Return `base=10` for variants of the most common class with a base, else `rotary=...`."""
    classes = collections.Counter(type(rotary) for rotary in variants if hasattr(rotary, "base"))
    leading = next((cls for cls, _ in classes.most_common(1)), None)
    parameters = [vars(rotary) for rotary in variants if type(rotary) is leading]
    shared = {
        name: value
        for name, value in (parameters[0] if parameters else {}).items()
        if name != "base" and all(other[name] == value for other in parameters)
    }
    names = [rotary_lib.label(rotary) for rotary in variants]
    # The path of a user's file is needed only if two files define equal variants.
    classes_only = [re.sub(r"[^\s,(\[]*\.py:", "", name) for name in names]
    if len(set(classes_only)) == len(set(names)):
        names = classes_only
    return [
        rotary_lib.expression(rotary, shared).partition("(")[2].removesuffix(")")
        if type(rotary) is leading
        else f"rotary={name}"
        for rotary, name in zip(variants, names, strict=True)
    ]
