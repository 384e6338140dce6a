"""Frequency of each distance in training: pairs of tokens of one document at each distance.

The count of STRING (An et al. 2024, arXiv 2410.18745): a document of n tokens has n - m pairs at
distance m, so long distances are rare, and rarer if documents are short. The authors conclude that
this limits the effective context; this probe shows the counts and the effective context together.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ropewalk.data.pipeline import open_data
from ropewalk.experiment import stages
from ropewalk.experiment.items import read_items
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.probes.probe import Number, Probe, draw_band
from ropewalk.probes.resample import bootstrap_mean, quantile_distances
from ropewalk.probes.subject import Subject
from ropewalk.utils.figures import DASHED, INK, handle, token_axis

# Limits of the sample of training rows; it is large enough for an interval.
_MAX_TOKENS = 2**21
_MAX_ROWS = 2**11


class PositionsSeen(Probe):
    """Frequency of each distance inside a document of the training rows, and L50.

    `_3` are a mean over rows and the ends of its 95% interval.

    Attributes:
      seen_3M: pairs per row of a query and a key 0, 1, 2, ... tokens before it, in one document,
        that some layer attends to; mean over rows.
      half_3: tokens; half of all pairs are no farther apart.
      num_rows, counted_rows: rows read in training up to the checkpoint, and rows counted.
      l50_3: effective context, tokens; NaN if the task is not learned, inf if L50 is beyond the
        longest distance tested.
    """

    title = "Distances in training"
    caption = """
    Pairs of tokens at each distance inside a document, per row of the run's training data. Dashed:
    L50; it is missing if it is beyond the longest distance tested, or if the task is not learned.
    Bands are 95% intervals over rows; one line per seed."""
    y_labels = ("pairs per row",)
    x_label = "distance (tokens, log scale)"
    sharey = "row"
    draws_all_seeds = True
    references = (handle("L50", color=INK, lw=1, ls=DASHED),)

    @classmethod
    def measure(cls, subject: Subject) -> "PositionsSeen":
        """Read the rows again, and measure the effective context.

        Raises:
          ValueError: if the run's training data is not available.
        """
        counts_BM, num_rows = count_training_pairs(subject.run)
        counts_BM *= subject.capture.is_visible(np.arange(counts_BM.shape[1])).any(axis=0)
        return cls(
            seen_3M=bootstrap_mean(counts_BM),
            half_3=quantile_distances(counts_BM, [0.5])[:, 0],
            num_rows=num_rows,
            counted_rows=len(counts_BM),
            l50_3=np.array(subject.l50),
        )

    @property
    def share_at_l50(self) -> float:
        """Pairs at L50 (whole tokens) as a share of the pairs at distance 1; NaN without L50."""
        seen_M, l50 = self.seen_3M[0], self.l50_3[0]
        if not math.isfinite(l50):
            return math.nan
        return float(seen_M[int(l50)] / seen_M[1])

    def numbers(self) -> dict[str, Number]:
        """Return the median distance, L50, and the share of pairs at L50."""
        return {
            "half of the pairs within (tokens)": Number(*self.half_3),
            "L50 (tokens)": Number(*self.l50_3),
            "pairs at L50 (share of those at 1 token)": Number(self.share_at_l50, largest=1),
        }

    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw a line."""
        (ax,) = axes
        distances_M = np.arange(1, self.seen_3M.shape[1])  # a log axis has no 0
        draw_band(ax, distances_M, self.seen_3M[:, 1:], color)
        if math.isfinite(self.l50_3[0]):
            ax.axvline(self.l50_3[0], color=color, lw=1, ls=DASHED)
        token_axis(ax.xaxis)
        ax.set_ylim(0)


def count_training_pairs(run: LoadedRun) -> tuple[np.ndarray, int]:
    """Return pairs by distance in training rows, and the number of rows read in all stages.

    Returns:
      float64 `[B, M]` of all rows or of a random sample: pairs of one document at distances 0, 1,
      2, ..., and the number of rows.

    Raises:
      ValueError: if the run's training data is not available.
    """
    trained = [stage for stage in stages.split(run.directory.config) if stage.start < run.step]
    opened = [open_data(run.directory.with_own_tokenizer(s.config.data)) for s in trained]
    recorded = read_items(run.directory, run.step)[0]["data"]["fingerprint"]
    if opened[-1].fingerprint != recorded:
        raise ValueError(
            f"{run.directory.path}: its training data is not available: it was trained on data of "
            f"fingerprint {recorded[:12]}, and the data here has {opened[-1].fingerprint[:12]}"
        )
    length = max(stage.config.data.context_length for stage in trained)
    sizes = np.array([stage.config.data.batch_size for stage in trained])
    num_rows = sizes * [min(stage.end, run.step) - stage.start for stage in trained]
    # Stages that read the same stream of rows continue it.
    rows_before = sizes * [stage.start - stage.rows_from for stage in trained]
    ends = np.cumsum(num_rows)
    count = min(int(ends[-1]), _MAX_ROWS, max(1, _MAX_TOKENS // length))
    counts_BM = np.zeros((count, length))
    rows = [data.open_rows("train") for data in opened]
    # A random sample: rows of different sources alternate, and even steps could miss a source.
    numbers = np.random.default_rng(0).choice(ends[-1], count, replace=False)
    for counts_M, number in zip(counts_BM, np.sort(numbers), strict=True):
        stage = int(np.searchsorted(ends, number, side="right"))
        index = number - ends[stage] + num_rows[stage] + rows_before[stage]
        row_counts_M = count_pairs(rows[stage][int(index)]["segment_ids"])
        counts_M[: len(row_counts_M)] = row_counts_M
    return counts_BM, int(ends[-1])


def count_pairs(segment_ids_T: np.ndarray) -> np.ndarray:
    """Return the pairs within one document at each distance, `[T]`; segment 0 is padding."""
    sizes = np.unique(segment_ids_T[segment_ids_T > 0], return_counts=True)[1]
    num_T = np.bincount(sizes, minlength=len(segment_ids_T) + 1)[1:]  # documents of 1, 2, ...
    # A document of n tokens has one pair more at each distance below n than at the next distance.
    num_longer_T = num_T[::-1].cumsum()[::-1]
    return num_longer_T[::-1].cumsum()[::-1]
