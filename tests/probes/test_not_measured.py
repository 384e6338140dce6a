"""Numbers without questions, keys or variance are said to be not measured, and no head has them."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from ropewalk.probes.analyses.frequency_use import FrequencyUse
from ropewalk.probes.analyses.head_scores import head_scores
from ropewalk.probes.analyses.logit_by_distance import LogitByDistance
from ropewalk.probes.analyses.matching_keys import MatchingKeys
from ropewalk.probes.probe import Number, Probe, list_findings
from tests.probes.helpers import make_capture, make_subject, plant_keys

SHAPE = 20, 32, 2, 4


def measure_nothing(cls: type[Probe]) -> Probe:
    """Measure queries that attend only to themselves, and answers that are all wrong."""
    captured, questions = plant_keys(SHAPE, np.ones(4), noise=1, window=1)
    right_Q = np.zeros(SHAPE[0], bool)
    if cls is LogitByDistance:
        captured = make_capture(np.zeros(SHAPE), np.zeros(SHAPE), "nope")
    if cls.name() == "head_scores":
        return head_scores(captured, questions, right_Q, captured, captured)
    return cls.measure(make_subject(captured, questions, right_Q))


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
    findings = list(list_findings({cls: {"base=10": [probe]}}))
    missing = [line for line in findings if line.endswith(": not measured with base 10")]
    assert len(missing) == len(UNMEASURED[measured])
    names = UNMEASURED[measured]
    assert all(any(line.lower().startswith(name.lower()) for name in names) for line in missing)
    cells = [cell for line in probe.lines() for cell in line.values()]
    assert "not measured" in cells
    assert not any(word in text for word in ("nan", "> ", "–") for text in [*findings, *cells])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": [5], "b": [5]}, "With all members, the best head sees 5 tokens"),
        ({"a": [5], "b": [5], "c": [math.nan]},
         "With 2 of 3 members, the best head sees 5 tokens; it: not measured with c"),
        ({"base=10": [5], "base=30,num_heads=4": [math.inf]},
         "With base 10, head 1 sees 5 tokens; with base 30, 4 heads, head 1 sees all"),
        ({"a": [5, 5]}, "With a, the best head sees 5 tokens"),  # seeds have no common order
        ({"a": [5, math.nan], "b": [math.nan] * 2}, 
         "It: 5 / not measured with a; it: not measured with b"),
    ],
)  # fmt: skip
def test_findings_are_sentences_that_name_members_without_a_value(values, expected):
    class Sees(Probe):
        sentences = {"it": "{head} sees {value} tokens|{head} sees all"}  # noqa: RUF012

    results = {
        label: [SimpleNamespace(numbers=lambda x=x: {"it": Number(x, head="1")}) for x in seeds]
        for label, seeds in values.items()
    }
    assert list(list_findings({Sees: results})) == [expected]  # pyright: ignore
