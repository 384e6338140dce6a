"""Verdicts on forecasts and claims.

A forecast is held if measured L50, the mean over seeds of its logarithm, is within half an octave
of it. A forecast or a measurement beyond all distances counts as the longest distance. A claim is
held unless the results refute it. `_obstacle` lists what keeps results from deciding either.
"""

import dataclasses
from collections.abc import Sequence

from studies.card import Claim
from studies.results import CardResults, Key

HALF_OCTAVE = 0.5
_MIN_SEEDS = 3  # with fewer seeds a verdict is marked "seen"

HELD, FAILED, REFUTED = "held", "failed", "refuted"
NOT_CONVERGED, NOT_LEARNED, NOT_RUN = "not converged", "not learned", "not run"
NOT_FINISHED, NO_FORECAST = "not finished", "no forecast"
LABELS = HELD, FAILED, REFUTED, NOT_CONVERGED, NOT_LEARNED, NOT_FINISHED, NOT_RUN, NO_FORECAST


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict on a forecast or a claim.

    Attributes:
      label: one of `LABELS`.
      num_seeds: the smallest number of seeds of any member that it depends on.
    """

    label: str
    num_seeds: int = 0

    def __str__(self) -> str:
        if self.label in (NOT_RUN, NO_FORECAST):
            return self.label
        is_seen = self.num_seeds < _MIN_SEEDS and self.label != NOT_FINISHED
        seeds = f"{self.num_seeds} seed{'s' * (self.num_seeds > 1)}"
        return f"{self.label} ({'seen, ' * is_seen}{seeds})"


def judge_forecast(results: CardResults, member: str, measurement: str) -> Verdict:
    """Judge the forecast of a member's L50 by one measurement."""
    forecast = results.forecasts.get((member, measurement))
    if forecast is None:
        return Verdict(NO_FORECAST)
    key = results.find_key(member, measurement)
    if obstacle := _obstacle(results, [key]):
        return obstacle
    assert key is not None  # `_obstacle` says so
    is_near = abs(results.octaves_beyond(forecast, key)) <= HALF_OCTAVE
    return _verdict(results, HELD if is_near else FAILED, [key])


def judge_claim(results: CardResults, claim: Claim) -> Verdict:
    """Judge a claim by the results of its members."""
    keys = [(member, name, claim.task) for member in claim.members for name in claim.measurements]
    if obstacle := _obstacle(results, keys):
        return obstacle
    is_refuted = claim.is_refuted_by(*(results.seeds(*key) for key in keys))
    return _verdict(results, REFUTED if is_refuted else HELD, keys)


def _verdict(results: CardResults, label: str, keys: Sequence[Key]) -> Verdict:
    return Verdict(label, min(len(results.last_rows[member]) for member, *_ in keys))


def _obstacle(results: CardResults, keys: Sequence[Key | None]) -> Verdict | None:
    """Return why the results decide nothing yet; None if they decide."""
    measured = [key for key in keys if key in results.estimates]
    if len(measured) < len(keys):
        return Verdict(NOT_RUN)
    rows = [row for member, *_ in measured for row in results.last_rows[member].values()]
    seeds = [seed for key in measured for seed in results.unmasked(key).seeds]
    if any(not row.final for row in rows):
        return _verdict(results, NOT_FINISHED, measured)
    if not all(seed.learned for seed in seeds):
        return _verdict(results, NOT_LEARNED, measured)
    if any(row.final == NOT_CONVERGED for row in rows):
        return _verdict(results, NOT_CONVERGED, measured)
    return None
