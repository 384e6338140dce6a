"""Inheritance: a run that starts from another one takes over its model and its tokenizer.

The value of a field of `model` is that of, in this order:

    an override that names it      typed, or of a sweep's member
    the parent                     the run that `start_from` names, at the step it starts from
    the experiment file            only if no override names `start_from`

An experiment file that names `start_from` itself is written for its parent, so its `model` and
`data.tokenizer` are requests, as overrides are. Stages change what the first one inherited: they
are requests too. A run records its parent's config in config.json, so it is resumed with the same
config when the parent has trained on or was deleted.
"""

import dataclasses
from collections.abc import Sequence

from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.dotted import apply
from ropewalk.experiment.run import RunDirectory, find_start
from ropewalk.utils.paths import as_path


def inherit(
    config: ExperimentConfig, overrides: Sequence[str], run: RunDirectory | None = None
) -> ExperimentConfig:
    """Return `config` with `overrides`, on the model and tokenizer of the run it starts from.

    Args:
      config: an experiment file's.
      overrides: `dotted.field=value` each, as `experiment.dotted.apply` takes them.
      run: where it is trained; a started run keeps what it inherited. None: a run that is not
        started.

    Returns:
      The config; its `start_from` has a step if an override named it.

    Raises:
      ValueError: if an override is wrong, or there is no such parent.
    """
    names = {override.partition("=")[0] for override in overrides}
    starts = [override for override in overrides if override.startswith("start_from=")]
    start = apply(config, starts).start_from if starts else None
    if start is None:
        return apply(config, overrides)
    start, parent = _find_parent(start, run)
    data = dataclasses.replace(
        config.data, tokenizer=parent.data.tokenizer, vocab_size=parent.data.vocab_size
    )
    child = apply(dataclasses.replace(config, model=parent.model, data=data), overrides)
    if "data.tokenizer" not in names:
        if child.data.vocab_size != parent.data.vocab_size:
            raise ValueError(
                f"data.vocab_size={child.data.vocab_size}: a run keeps the tokenizer of the run "
                "that start_from names; leave it out"
            )
        data = dataclasses.replace(
            child.data, tokenizer=_tokenizer(child.data, start, parent.data, run)
        )
        child = dataclasses.replace(child, data=data)
    return dataclasses.replace(child, start_from=start)


def _find_parent(start_from: str, run: RunDirectory | None) -> tuple[str, ExperimentConfig]:
    """Return `DIR@STEP` and the config in force there."""
    if run is not None:
        start_from = run.pin(start_from)
        if run.is_started() and run.config.start_from == start_from:
            return start_from, run.parent_config
    parent, step = find_start(start_from)
    return f"{parent.path}@{step}", parent.config_at(step)


def _tokenizer(
    data: DataConfig, start_from: str, parent: DataConfig, run: RunDirectory | None
) -> str | None:
    """Return the `data.tokenizer` that gives a child the tokenizer of its parent.

    That is the parent's own setting where it still means the same tokenizer: text that was made
    into ids for the parent is then found again, and members of several parents share their rows.
    """
    if run is not None and run.is_started() and run.config.start_from == start_from:
        return run.config.data.tokenizer
    if parent.tokenizer is None:
        is_same = (data.source, data.path) == (parent.source, parent.path)
    else:
        is_same = as_path(parent.tokenizer).exists()
    path = find_start(start_from)[0].tokenizer_path
    return parent.tokenizer if is_same or not path.exists() else str(path)
