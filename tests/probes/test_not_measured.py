"""Numbers without questions, keys or variance are said to be not measured, and no head has them."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from ropewalk.probes import page
from ropewalk.probes.analyses.frequency_use import FrequencyUse
from ropewalk.probes.analyses.head_scores import head_scores
from ropewalk.probes.analyses.logit_by_distance import LogitByDistance
from ropewalk.probes.analyses.matching_keys import MatchingKeys
from ropewalk.probes.probe import Number, Probe
from tests.probes.helpers import make_capture, make_subject, plant_keys

SHAPE = 20, 32, 2, 4


def measure_nothing(cls: type[Probe]) -> Probe:
    """Measure queries that attend only to themselves, and answers that are all wrong."""
    inside, questions = plant_keys(SHAPE, np.ones(4), noise=1, window=1)
    right_Q = np.zeros(SHAPE[0], bool)
    if cls is LogitByDistance:
        inside = make_capture(np.zeros(SHAPE), np.zeros(SHAPE), "nope")
    if cls.name() == "head_scores":
        return head_scores(inside, questions, right_Q, inside, inside)
    return cls.measure(make_subject(inside, questions, right_Q))


UNMEASURED = {
    MatchingKeys: {"zero of the empirical B(m)", "distance where the best head"},
    FrequencyUse: {"period up to which pairs have half of the gap"},
    LogitByDistance: {"share of the logit's variance"},
    head_scores: {"retrieval, highest of heads", "retrieval, highest of random heads"},
}


@pytest.mark.parametrize("measured", UNMEASURED, ids=lambda x: x.__name__)
def test_numbers_of_nothing_are_not_measured(measured):
    from ropewalk.probes.analyses.head_scores import HeadScores

    cls = HeadScores if measured is head_scores else measured
    probe = measure_nothing(cls)
    findings = list(page.list_findings({cls: {"base=10": [probe]}}))
    missing = [line for line in findings if line.endswith(": not measured (base=10)")]
    assert len(missing) == len(UNMEASURED[measured])
    assert all(any(line.startswith(name) for name in UNMEASURED[measured]) for line in missing)
    cells = [cell for line in probe.lines() for cell in line.values()]
    assert "not measured" in cells
    assert not any(word in text for word in ("nan", "> ", "–") for text in [*findings, *cells])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": [5], "b": [5]}, "5 (all members)"),
        ({"a": [5], "b": [5], "c": [math.nan]}, "5 (2 of 3 members); not measured (c)"),
        ({"a": [5], "b": [7], "c": [math.nan]}, "5 (a, head 1) to 7 (b, head 1); not measured (c)"),
        ({"a": [5, 5]}, "5 (a)"),  # heads of different seeds have no common order
        ({"a": [5, math.nan], "b": [math.nan] * 2}, "5 / not measured (a); not measured (b)"),
    ],
)  # fmt: skip
def test_findings_name_members_without_a_value(values, expected):
    results = {
        label: [SimpleNamespace(numbers=lambda x=x: {"it": Number(x, head="1")}) for x in seeds]
        for label, seeds in values.items()
    }
    assert list(page.list_findings({Probe: results})) == [f"it: {expected}"]  # pyright: ignore
