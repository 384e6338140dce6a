"""Make a config from another one by writing only the differences."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ropewalk.experiment.config import ExperimentConfig, stored_fields
from ropewalk.utils.messages import nearest


def change(config: ExperimentConfig, **changes: Any) -> ExperimentConfig:
    """Return a changed copy, like `dataclasses.replace` at any depth.

    A dict holds changes within a field: `change(config, name="b", model=dict(num_layers=4))`.

    Raises:
      ValueError: for an unknown field, with the nearest one, or a value that is not allowed.
    """
    return _replace(config, changes, "")


def _replace(value: Any, changes: dict[str, Any], prefix: str) -> Any:
    names = [field.name for field in stored_fields(type(value))]
    new = {}
    for name, change in changes.items():
        if name not in names:
            raise ValueError(f"unknown field {prefix + name!r}; {nearest(name, names)}")
        is_part = isinstance(change, dict)
        new[name] = (
            _replace(getattr(value, name), change, f"{prefix}{name}.") if is_part else change
        )
    return dataclasses.replace(value, **new)


def heads(number: int, size: int = 64) -> dict[str, int]:
    """Return changes of a model: as many key heads as query heads, which fill its width."""
    return dict(embed_dim=number * size, num_heads=number, num_kv_heads=number, head_dim=size)


def vary(field: str, values: Iterable[object], *common: str) -> tuple[tuple[str, ...], ...]:
    """Return members of a sweep that differ in one field and share the overrides `common`."""
    return tuple((*common, f"{field}={value}") for value in values)
