"""Marks of the bounds of a study, and verdicts on its claims.

D_H bounds the L50 of heads whose other keys have random codes, so it is tested as a bound: a member
exceeds it if the interval of its L50 lies above it. A claim is held unless the results refute it.
`_obstacle` lists what keeps results from deciding either. The marks of the minimal head's
forecasts are in `studies.recall`.
"""

import dataclasses
from collections.abc import Sequence

from studies.card import Claim
from studies.results import CardResults, Key

_MIN_SEEDS = 3  # with fewer seeds a verdict is marked "seen"

HELD, REFUTED = "held", "refuted"
EXCEEDS, NOT_EXCEEDED, NO_BOUND = "exceeds", "not exceeded", "no bound within the distances"
NOT_LEARNED, NOT_RUN, NOT_FINISHED = "not learned", "not run", "not finished"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Mark of a bound, or verdict on a claim.

    Attributes:
      label: one of the constants above.
      num_seeds: the smallest number of seeds of any member that it depends on.
    """

    label: str
    num_seeds: int = 0

    def __str__(self) -> str:
        if self.label in (NOT_RUN, NO_BOUND):
            return self.label
        is_seen = self.num_seeds < _MIN_SEEDS and self.label != NOT_FINISHED
        seeds = f"{self.num_seeds} seed{'s' * (self.num_seeds > 1)}"
        return f"{self.label} ({'seen, ' * is_seen}{seeds})"


def judge_bound(results: CardResults, member: str, measurement: str) -> Verdict:
    """Judge D_H as a bound on a member's L50 by one measurement."""
    key = results.find_key(member, measurement)
    if obstacle := _obstacle(results, [key]):
        return obstacle
    assert key is not None  # `_obstacle` says so
    estimate, bound = results.estimates[key], results.forecasts.get((member, measurement))
    if bound is None or bound >= estimate.longest:
        return Verdict(NO_BOUND)
    is_passed = estimate.verdict.startswith(">") or estimate.ci_low > bound
    return _verdict(results, EXCEEDS if is_passed else NOT_EXCEEDED, [key])


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
    return None
