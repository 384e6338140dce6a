"""What every probe is: a question put to one run, whose answer is arrays that can be drawn."""

import abc
import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from matplotlib.figure import Figure

from data.files import write_atomically
from probes.subject import Subject
from settings.folders import name_of

INTERVAL = 2.5, 97.5  # percent
_RESAMPLES = 400

P = TypeVar("P", bound="Probe")


class Number(NamedTuple):
    """One number of a run, with its 95% interval over documents where it has one."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Probe(abc.ABC):
    """What was found in one run at one checkpoint; one subclass a file of `probes.asked`.

    A subclass is a frozen dataclass whose fields are arrays or numbers, with their units in its
    docstring; the first line of that is what help says of it.

    Attributes:
      title: of its part of the page.
      caption: under its figure.
      by_default: whether it is asked where none is named: it takes seconds.
      order: of the page's parts; equal ones by name.
    """

    title: ClassVar[str]
    caption: ClassVar[str]
    by_default: ClassVar[bool] = False
    order: ClassVar[int] = 1

    @classmethod
    @abc.abstractmethod
    def look(cls: type[P], subject: Subject) -> P:
        """Asks a run. Raises ValueError where this cannot be asked of it."""

    @abc.abstractmethod
    def numbers(self) -> dict[str, Number]:
        """Of the run as a whole, by what they are called, with units: comparable over seeds."""

    def lines(self) -> list[dict[str, str]]:
        """A table, a line a head or the like: cells by head of column."""
        return []

    @classmethod
    @abc.abstractmethod
    def plot(cls: type[P], found: Mapping[str, Sequence[P]]) -> Figure:
        """Members side by side: by label what was found in each of its seeds."""

    @classmethod
    def name(cls) -> str:
        """As the command line has it: its file's."""
        return name_of(cls)

    def save(self, run: Path, **more: Any) -> Path:
        """Writes the arrays to probes/NAME.npz of a run directory, with what else is given."""
        path = run / "probes" / f"{self.name()}.npz"
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        np.savez(buffer, **arrays, **more)
        write_atomically(path, buffer.getvalue())
        return path


def heads(x_LN: np.ndarray) -> list[tuple[int, int]]:
    """(layer, head) of all heads, in order, of an array with a number for each."""
    return list(np.ndindex(x_LN.shape))


def complex_pairs(x: np.ndarray) -> np.ndarray:
    """`[..., H]` features as `[..., R]` pairs, each one number whose argument rotation adds to."""
    first, second = np.split(x, 2, axis=-1)
    return first + 1j * second


def resampled(count: int) -> np.ndarray:
    """How often each of `count` documents is drawn in a bootstrap, `[C, B]`; always the same."""
    random = np.random.default_rng(0)
    return random.multinomial(count, [1 / count] * count, _RESAMPLES)


def over_documents(sum_BX: np.ndarray, count_BX: np.ndarray) -> np.ndarray:
    """The mean of all documents' items, and its interval.

    Args:
      sum_BX: over each document's items, `[B, ...]`.
      count_BX: how many items it has, the same or `[B]`.

    Returns:
      `[3, ...]`: the mean, and the two ends of its interval. NaN where there are no items, or too
      few of them for every draw of documents to have one.
    """
    weights_CB = np.concatenate([np.ones((1, len(sum_BX))), resampled(len(sum_BX))])
    sum_CX, count_CX = (np.tensordot(weights_CB, each_BX, 1) for each_BX in (sum_BX, count_BX))
    with np.errstate(invalid="ignore"):
        mean_CX = (sum_CX.T / count_CX.T).T  # from behind: documents stand in front
    return np.stack([mean_CX[0], *np.percentile(mean_CX[1:], INTERVAL, axis=0)])


def within(x_BM: np.ndarray, parts: Sequence[float]) -> np.ndarray:
    """How far one must go for each of some parts of what lies at the distances 0, 1, 2, ...

    Args:
      x_BM: how much lies there, by document.
      parts: of all of it, P of them.

    Returns:
      `[3, P]`: the distance, and the two ends of its interval.
    """
    weights_CB = np.concatenate([np.ones((1, len(x_BM))), resampled(len(x_BM))])
    sum_CM = np.cumsum(weights_CB @ x_BM, axis=1)
    enough_PCM = sum_CM >= np.asarray(parts)[:, None, None] * sum_CM[:, -1:]
    first_PC = enough_PCM.argmax(axis=2)
    return np.stack([first_PC[:, 0], *np.percentile(first_PC[:, 1:], INTERVAL, axis=1)])
