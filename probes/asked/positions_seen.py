"""How often training met each distance: pairs of tokens so far apart, inside a document.

The count of STRING (An et al. 2024, arXiv 2410.18745): a document of n tokens holds n - m pairs at
distance m, so far ones are rare, and rarer where documents are short. They hold it to be why models
see less far than the context they were trained with; here the effective context stands beside it.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from data.pipeline import open_data
from experiment import stages
from experiment.items import read_items
from experiment.loaded import LoadedRun
from probes.figures import COLORS, DASHES, first_column, panels
from probes.probe import Number, Probe, over_documents, within
from probes.subject import Subject
from reporting.looks import INK
from reporting.style import handle, token_axis

# Rows that are counted, and their tokens, of all that training read: enough for an interval.
_TOKENS = 2**21
_ROWS = 2**11


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PositionsSeen(Probe):
    """How often each distance occurred inside a document of the training rows, beside L50.

    `_3` are a mean over rows and the ends of its 95% interval.

    Attributes:
      seen_3M: pairs of a query and a key 0, 1, 2, ... tokens before it in a row, in one document,
        that a layer sees; mean of the rows.
      half_3: tokens; half of all pairs are no farther apart.
      num_rows, counted_rows: that training read up to the checkpoint, and of which these are.
      l50_3: effective context of the task that is asked, tokens; NaN where it is not learned, inf
        where no distance asked is beyond it.
    """

    title = "Distances seen in training"
    caption = """
    Pairs of tokens so far apart inside a document, in a row of the run's own training. Dashed: how
    far the model finds what it needs (L50); there is none where it finds it at all distances asked,
    or has not learned to. Bands are 95% intervals over rows; a line a seed."""

    seen_3M: np.ndarray
    half_3: np.ndarray
    num_rows: int
    counted_rows: int
    l50_3: np.ndarray

    @classmethod
    def look(cls, subject: Subject) -> "PositionsSeen":
        """Reads the rows again, and measures the effective context.

        Raises:
          ValueError: where the data the run was trained on is not to be had here.
        """
        counts_BM, num_rows = training_pairs(subject.run)
        inside, _ = subject.asked
        distances_M = np.arange(counts_BM.shape[1])
        layers = range(inside.config.num_layers)
        sees_M = np.any([inside.sees(layer, distances_M) for layer in layers], axis=0)
        return positions_seen(counts_BM * sees_M, num_rows, subject.l50)

    @property
    def at_l50(self) -> float:
        """How often L50, in whole tokens, occurred for each time distance 1 did; NaN without."""
        seen_M, l50 = self.seen_3M[0], self.l50_3[0]
        if not math.isfinite(l50):
            return math.nan
        return float(seen_M[int(l50)] / seen_M[1])

    def numbers(self) -> dict[str, Number]:
        """Where half of the pairs lie, L50, and how often that occurred."""
        return {
            "half of the pairs within (tokens)": Number(*self.half_3.tolist()),
            "L50 (tokens)": Number(*self.l50_3.tolist()),
            "pairs at L50 (share of those at 1 token)": Number(self.at_l50),
        }

    @classmethod
    def plot(cls, found: Mapping[str, Sequence["PositionsSeen"]]) -> Figure:
        """A line a seed."""
        figure, axes = panels(list(found), sharex=True, sharey=True)
        for (ax,), seeds in zip(axes, found.values(), strict=True):
            for each, color in zip(seeds, COLORS * len(seeds), strict=False):
                distances_M = np.arange(1, each.seen_3M.shape[1])  # 0 has no logarithm
                seen_M, low_M, high_M = each.seen_3M[:, 1:]
                ax.plot(distances_M, seen_M, color=color, lw=1.6)
                ax.fill_between(distances_M, low_M, high_M, color=color, alpha=0.2, lw=0)
                if math.isfinite(each.l50_3[0]):
                    ax.axvline(each.l50_3[0], color=color, lw=1, ls=DASHES)
            ax.set_xscale("log", base=2)
            ax.set_ylim(0)
            token_axis(ax.xaxis, num_ticks=6)
        for (ax,) in first_column(axes):
            ax.set_ylabel("pairs a row")
        figure.supxlabel("distance (tokens, log scale)", fontsize=10)
        figure.legend(
            handles=[handle("L50", color=INK, lw=1, ls=DASHES)], loc="outside right center"
        )
        return figure


def positions_seen(
    counts_BM: np.ndarray, num_rows: int, l50: tuple[float, float, float]
) -> PositionsSeen:
    """What rows hold, beside how far the model sees.

    Args:
      counts_BM: pairs of each row by distance, from 0 on.
      num_rows: of which these are some.
      l50: as `Subject.l50`.
    """
    return PositionsSeen(
        seen_3M=over_documents(counts_BM, np.ones(len(counts_BM))),
        half_3=within(counts_BM, [0.5])[:, 0],
        num_rows=num_rows,
        counted_rows=len(counts_BM),
        l50_3=np.array(l50),
    )


def training_pairs(run: LoadedRun) -> tuple[np.ndarray, int]:
    """Pairs by distance in rows of a run's training, and how many rows it read in all its stages.

    Returns:
      float64 `[B, M]` of all rows, or some at random: in one document, at distances 0, 1, 2, ...

    Raises:
      ValueError: where the data it was trained on is not to be had here.
    """
    trained = [stage for stage in stages.split(run.directory.config) if stage.start < run.step]
    opened = [open_data(stage.config.data) for stage in trained]
    known = read_items(run.directory, run.step)[0]["data"]["fingerprint"]
    if opened[-1].fingerprint != known:
        raise ValueError(
            f"{run.directory.path}: the rows it was trained on are not to be had here: data of "
            f"fingerprint {known[:12]}, and this is {opened[-1].fingerprint[:12]}"
        )
    length = max(stage.config.data.context_length for stage in trained)
    sizes = [stage.config.data.batch_size for stage in trained]
    ends = np.cumsum(
        [
            (min(stage.end, run.step) - stage.start) * size
            for stage, size in zip(trained, sizes, strict=True)
        ]
    )
    count = min(int(ends[-1]), _ROWS, max(1, _TOKENS // length))
    counts_BM = np.zeros((count, length))
    rows = [data.open_rows("train") for data in opened]
    # At random: kinds of rows are interleaved evenly, and even steps could miss one of them.
    numbers = np.random.default_rng(0).choice(ends[-1], count, replace=False)
    for counts_M, number in zip(counts_BM, np.sort(numbers), strict=True):
        at = int(np.searchsorted(ends, number, side="right"))
        before = ends[at - 1] if at else 0
        # Stages that read one stream of rows go on in it.
        read = (trained[at].start - trained[at].rows_from) * sizes[at]
        found_M = pairs(rows[at][int(number - before + read)]["segment_ids"])
        counts_M[: len(found_M)] = found_M
    return counts_BM, int(ends[-1])


def pairs(segment_ids_T: np.ndarray) -> np.ndarray:
    """Pairs at each distance in one document: of a row of such segments, 0 for padding; `[T]`."""
    sizes = np.unique(segment_ids_T[segment_ids_T > 0], return_counts=True)[1]
    num_T = np.bincount(sizes, minlength=len(segment_ids_T) + 1)[1:]  # documents of 1, 2, ...
    # One of n tokens holds a pair more at each distance below n than at the next one.
    at_least_T = num_T[::-1].cumsum()[::-1]
    return at_least_T[::-1].cumsum()[::-1]
