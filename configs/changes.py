"""How a config is made from another one: what differs is all that is written."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from experiment.config import ExperimentConfig


def change(config: ExperimentConfig, **changes: Any) -> ExperimentConfig:
    """`dataclasses.replace` at any depth.

    A dict holds changes within a field: `change(config, name="b", model=dict(num_layers=4))`.
    """
    return _replace(config, changes)


def _replace(value: Any, changes: dict[str, Any]) -> Any:
    nested = {
        name: _replace(getattr(value, name), new)
        for name, new in changes.items()
        if isinstance(new, dict)
    }
    return dataclasses.replace(value, **changes | nested)


def heads(number: int, size: int = 64) -> dict[str, int]:
    """Changes of a model: as many heads for queries as for keys, which fill its width."""
    return dict(embed_dim=number * size, num_heads=number, num_kv_heads=number, head_dim=size)


def vary(field: str, values: Iterable[object], *common: str) -> tuple[tuple[str, ...], ...]:
    """Members of a sweep that differ in one field, each with the overrides that all have."""
    return tuple((*common, f"{field}={value}") for value in values)
