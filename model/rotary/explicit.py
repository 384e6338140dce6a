"""Frequencies of one's own: the vector itself, in place or from a file."""

import dataclasses
import json

import numpy as np

from model.rotary.base import Rotary, listed
from settings.checks import NonNegative


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explicit(Rotary):
    """Pair i rotates `values[i]` radians per token.

    A file is read when the object is made, and what the object holds and a run records is the
    numbers: `file` is None ever after. Give one of the two.

    Attributes:
      values: radians per token, at least 0, one number a pair that rotates.
      file: a `.npy` file of one row of numbers, or a `.json` file of a list or of an object with
        the list under "inv_freq" (as `python -m model.rotary show --json` writes it).

    Cookbook:
      frequency: whatever the list says
      source: –
      use: frequencies of your own, from `.npy`, JSON or in place
      transformers: –
      write: `explicit(file='mine.npy')`, `explicit(values=(1.0,0.1,...))`
    """

    values: tuple[NonNegative, ...] = ()
    file: str | None = None

    def __post_init__(self):
        values, file = listed(self.values), self.file
        if (file is None) == (values == ()):
            raise ValueError("explicit needs one of values=(1.0,...) and file='NAME.npy'")
        if isinstance(file, str):
            values = listed(_read(file))
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
        """See `Rotary.frequencies`."""
        return np.array(self.values)


def _read(file: str):
    try:
        if file.endswith(".npy"):
            return np.load(file, allow_pickle=False).tolist()
        if file.endswith(".json"):
            with open(file, encoding="utf-8") as stream:
                content = json.load(stream)
            return content["inv_freq"] if isinstance(content, dict) else content
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"file={file!r} cannot be read: {error!r}") from error
    raise ValueError(f"file={file!r} must end in .npy or .json")
