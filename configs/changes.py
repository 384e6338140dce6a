"""Make a config from another one by writing only the differences."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ropewalk.experiment.config import ExperimentConfig


def change(config: ExperimentConfig, **changes: Any) -> ExperimentConfig:
    """Return a changed copy, like `dataclasses.replace` at any depth.

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
    """Return changes of a model: as many key heads as query heads, which fill its width."""
    return dict(embed_dim=number * size, num_heads=number, num_kv_heads=number, head_dim=size)


def vary(field: str, values: Iterable[object], *common: str) -> tuple[tuple[str, ...], ...]:
    """Return members of a sweep that differ in one field and share the overrides `common`."""
    return tuple((*common, f"{field}={value}") for value in values)
