"""Functions for scripts and notebooks; `ropewalk` itself offers them."""

from pathlib import Path
from typing import Any

from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import ModelConfig, PositionTable


def rows(*paths: str | Path) -> list[dict[str, Any]]:
    """Return the result rows of runs and sweeps as dicts; `evals.rows` describes their columns.

    A list of dicts is what `pandas.DataFrame` and `polars.DataFrame` take.

    Args:
      *paths: directories of runs or sweeps; one that was not evaluated has no rows.

    Raises:
      ValueError: if a path is neither, or its rows are damaged or belong to another run.
    """
    from ropewalk.evals.rows import SCHEMA, read_run  # late: frequencies need no JAX
    from ropewalk.experiment.run import find_runs

    dicts = []
    for run in find_runs(paths):
        columns = [column.tolist() for column in read_run(run).values()]
        dicts += [dict(zip(SCHEMA, values, strict=True)) for values in zip(*columns, strict=True)]
    return dicts


def table(rotary: str, *, head_dim: int, context_length: int, num_layers: int = 1) -> PositionTable:
    """Return the frequencies, scales and windows of a rotary variant.

    Args:
      rotary: an expression, such as "rope(base=10000)", "nope", or a pattern over `num_layers`
        layers; docs/rotary.md lists all.
      head_dim: features of a head.
      context_length: tokens of the training; log-n and dynamic variants depend on it.
      num_layers: layers that variants of several bases repeat over.

    Returns:
      A table whose `inv_freq` is float64 `[num_layers, K, R]`, radians per token; K is the number
      of heads that differ, R that of pairs.

    Raises:
      ValueError: for an unknown variant or parameter, or one that does not fit the head.
    """
    variant = rotary_lib.parse_pattern(rotary)
    model = ModelConfig(
        rotary=variant,
        num_layers=num_layers,
        num_heads=1,
        head_dim=head_dim,
        embed_dim=head_dim,
        mlp_dim=1,
        vocab_size=1,
    )
    return model.position_table(context_length)


def audit(path: str | Path) -> dict[str, Any]:
    """Return what a published model's rotation does, as `ropewalk theory audit --json` prints it.

    Args:
      path: a config.json, or a folder with one.

    Raises:
      ValueError: if there is none, or its model type is unknown.
    """
    from ropewalk.theory import audit as audit_lib  # late: transformers takes seconds

    return audit_lib.audit(audit_lib.read_model(Path(path)))
