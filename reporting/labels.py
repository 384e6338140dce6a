"""What members are called: by what tells their settings apart, wherever their runs lie."""

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from experiment.config import ExperimentConfig
from experiment.run import is_operational
from model import rotary as rotary_lib
from model.rotary import Pattern, Rotary

_ROTARY = "model.rotary"


def flatten(config: Any, prefix: str = "") -> dict[str, str]:
    """Dotted fields, as overrides spell them; a rotary variant is one value, its expression."""
    first = config
    while isinstance(first, tuple) and first:
        first = first[0]
    if isinstance(first, Rotary):
        return {prefix: rotary_lib.label(config)}
    if not dataclasses.is_dataclass(config):
        return {prefix: ",".join(map(str, config)) if isinstance(config, tuple) else str(config)}
    flat = {}
    for field in dataclasses.fields(config):
        name = f"{prefix}.{field.name}" if prefix else field.name
        flat |= flatten(getattr(config, field.name), name)
    return flat


def setting(config: ExperimentConfig) -> dict[str, str]:
    """The fields that decide a run's numbers but for its seed: alike in the seeds of one member."""
    # Seeds that go on from the seeds of another run differ in where that one lies.
    start = config.start_from and re.sub(r"\bseed=\d+", "", config.start_from)
    flat = flatten(dataclasses.replace(config, start_from=start))
    seeds = ("seed", "data.seed")
    return {k: value for k, value in flat.items() if k not in seeds and not is_operational(k)}


def labels(configs: Sequence[ExperimentConfig]) -> list[str]:
    """`base=10`, `rotary=nope`, `base=10000,window=32`: as few fields as tell all of them apart.

    The rotary variant comes first. Of another field, the value that most of them have goes unsaid.
    """
    settings = _settings(configs)

    def told_apart(fields: Sequence[str]) -> int:
        return len({tuple(each.get(field) for field in fields) for each in settings})

    fields = list(dict.fromkeys(field for each in settings for field in each))
    chosen = [_ROTARY] if told_apart([_ROTARY]) > 1 else []
    while told_apart(chosen) < told_apart(fields):
        chosen.append(max(fields, key=lambda field: told_apart([*chosen, field])))
    unsaid = {}
    for field in chosen:
        counts = collections.Counter(each.get(field) for each in settings)
        value, count = counts.most_common(1)[0]
        if field != _ROTARY and count > len(settings) / 2:
            unsaid[field] = value
    return [
        ",".join(
            each[field] if field == _ROTARY else f"{field.rpartition('.')[2]}={each.get(field)}"
            for field in chosen
            if field not in unsaid or each.get(field) != unsaid[field]
        )
        or each[_ROTARY]
        for each in settings
    ]


def _settings(configs: Sequence[ExperimentConfig]) -> list[dict[str, str]]:
    """Of each config, with the rotary variant as `_variants` has it."""
    variants = _variants([config.model.rotary for config in configs])
    return [
        {**setting(config), _ROTARY: variant}
        for config, variant in zip(configs, variants, strict=True)
    ]


def axes_of(configs: Sequence[ExperimentConfig]) -> dict[str, list[str]]:
    """The fields in which settings differ, each with the value that every config has.

    Of fields that tell the same configs apart (heads, and key/value heads), the first.
    """
    settings = _settings(configs)
    found: dict[tuple[int, ...], tuple[str, list[str]]] = {}
    for field in dict.fromkeys(field for each in settings for field in each):
        values = [each.get(field, "") for each in settings]
        partition = tuple(map(values.index, values))
        if len(set(partition)) > 1:
            found.setdefault(partition, (field, values))
    return dict(found.values())


def seeds_said(configs: Sequence[ExperimentConfig]) -> str:
    """What varies from seed to seed: `3 seeds, of initialisation and rows`."""
    pairs = {(config.seed, config.data.seed) for config in configs}
    initial, rows = (sorted({pair[place] for pair in pairs}) for place in (0, 1))
    if len(pairs) == 1:
        return "1 seed"
    varied = "initialisation and rows"
    if len(rows) == 1:
        varied = f"initialisation only (data.seed={rows[0]})"
    elif len(initial) == 1:
        varied = f"rows only (seed={initial[0]})"
    return f"{len(pairs)} seeds, of {varied}"


def _variants(variants: Sequence[Pattern]) -> list[str]:
    """`base=10` of those of the commonest class that has a base, `rotary=EXPRESSION` of others."""
    classes = collections.Counter(type(each) for each in variants if hasattr(each, "base"))
    leading = next((cls for cls, _ in classes.most_common(1)), None)
    alike = [vars(each) for each in variants if type(each) is leading]
    given = {
        name: value
        for name, value in (alike[0] if alike else {}).items()
        if name != "base" and all(each[name] == value for each in alike)
    }
    return [
        rotary_lib.expression(each, given).partition("(")[2].removesuffix(")")
        if type(each) is leading
        else f"rotary={rotary_lib.label(each)}"
        for each in variants
    ]
