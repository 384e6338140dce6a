"""Explicit frequencies: the vector itself, inline or from a file."""

import dataclasses
from pathlib import Path

import numpy as np

from ropewalk.model.rotary.base import Rotary, as_floats
from ropewalk.utils.checks import NonNegative
from ropewalk.utils.limits import open_array, read_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explicit(Rotary):
    """Pair i rotates `values[i]` radians per token.

    Set one of the two fields. The constructor reads the file into `values` and resets `file` to
    None, so that a run records the numbers.

    Attributes:
      values: radians per token, at least 0, one number per rotated pair.
      file: a `.npy` file of one row of numbers, or a `.json` file of a list or of an object with
        the list under "inv_freq" (as `ropewalk theory show --json` writes it).

    Cookbook:
      frequency: values[i]
      source: –
      use: custom frequencies, inline or from `.npy` or JSON
      transformers: –
      write: `explicit(file='mine.npy')`, `explicit(values=(1.0,0.1,...))`
    """

    values: tuple[NonNegative, ...] = ()
    file: str | None = None

    def __post_init__(self):
        values, file = as_floats(self.values), self.file
        if (file is None) == (values == ()):
            raise ValueError("explicit needs one of values=(1.0,...) and file='NAME.npy'")
        if isinstance(file, str):
            values = as_floats(_read(file))
            object.__setattr__(self, "file", None)
            if not values:
                raise ValueError(f"file={file!r} holds no numbers")
        object.__setattr__(self, "values", values)
        try:
            super().__post_init__()
        except ValueError as error:
            raise ValueError(
                f"file={file!r}: {error}" if isinstance(file, str) else error
            ) from error

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return np.array(self.values)


def _read(file: str):
    try:
        if file.endswith(".npy"):
            return open_array(Path(file)).tolist()
        if file.endswith(".json"):
            content = read_json(Path(file))
            return content["inv_freq"] if isinstance(content, dict) else content
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"file={file!r} cannot be read: {error!r}") from error
    raise ValueError(f"file={file!r} must end in .npy or .json")
