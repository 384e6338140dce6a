import numpy as np
import pytest

from ropewalk.evals.tasks.lagcopy import Lagcopy
from ropewalk.reporting.task_view import view_of
from ropewalk.reporting.tasks.lagcopy import copy_gain
from tests.evals.helpers import make_documents, rows


def test_a_given_lag_repeats_to_the_end(prose_config, prompt_tokenizer):
    task = Lagcopy(lag=7, answers=30)
    for document in make_documents(task, prose_config, prompt_tokenizer, 30, range(5)):
        tokens = document.tokens.tolist()
        assert len(tokens) == 31 and tokens[1:24] == tokens[8:31]
        assert len(set(tokens[1:8])) == 7
        # From the second id of the second copy on, each a piece of context after its first saying.
        assert document.answers.tolist() == [[start, 1, 6] for start in range(9, 31)]


@pytest.mark.parametrize("fields", [{}, {"lag": 41}, {"passage": 16}])
def test_natural_and_control_differ_in_the_first_copy_only(fields, prose_config, prompt_tokenizer):
    """Without a passage the lag repeats; at 300 tokens a passage of 16 lies up to 284 back."""
    lags = []
    tasks = [Lagcopy(text=text, **fields) for text in ("natural", "control")]
    inputs = prose_config, prompt_tokenizer, 300, range(40)
    documents = (make_documents(task, *inputs) for task in tasks)
    for natural, control in zip(*documents, strict=True):
        assert natural.number == control.number
        assert len(natural.tokens) == len(control.tokens) == 301
        lag = int(natural.answers[0, 2]) + 1
        size = min(lag, fields.get("passage", lag))
        first = slice(301 - size - lag, 301 - lag)
        np.testing.assert_array_equal(natural.tokens[first], natural.tokens[-size:])
        others = np.ones(301, bool)
        others[first] = False
        np.testing.assert_array_equal(natural.tokens[others], control.tokens[others])
        assert lag < 6 or (natural.tokens[first] != control.tokens[first]).mean() > 0.6
        # The second half of the second copy, id by id, to the end.
        assert natural.answers[:, 0].tolist() == list(range(301 - (size + 1) // 2, 301))
        np.testing.assert_array_equal(natural.answers, control.answers)
        lags.append(lag)
    assert set(lags) == {41} if "lag" in fields else len(set(lags)) > 8 and max(lags) > 75


def test_copy_gain_by_hand():
    """Two documents at lag 10, one at lag 100 (no partner for its second answer), and strangers."""
    natural = {  # and control
        "document": [0, 0, 1, 2, 2], "query": [0, 1, 0, 0, 1], "distance": [9, 9, 9, 99, 99],
        "nll": [1.0, 2.0, 0.5, 4.0, 9.0], "exact_match": [1, 1, 0, 0, 0],
        "task": ["lagcopy(text='natural')"] * 5,
    }  # fmt: skip
    control = natural | {
        "document": [0, 0, 1, 2, 3], "query": [0, 1, 0, 0, 0], "nll": [3.0, 5.0, 1.0, 4.5, 9.0],
        "exact_match": [0, 1, 1, 0, 0], "task": ["lagcopy(text='control')"] * 5,
    }  # fmt: skip
    strangers = natural | {"task": ["lagcopy"] * 5}
    columns = {name: natural[name] + control[name] + strangers[name] for name in natural}
    constant = {"run": "r", "seed": 0, "step": 7, "rotary": "nope", "length": 512}
    answers = rows(**columns, **{name: [value] * 15 for name, value in constant.items()})
    gain = copy_gain(answers)
    np.testing.assert_allclose(gain.lag, [10, 100])
    # Document 0 gains (2 + 3) / 2 nats and half a token; document 1 half a nat and -1 token.
    np.testing.assert_allclose(gain.nats, [1.5, 0.5])
    np.testing.assert_allclose(gain.accuracy, [-0.25, 0])
    # Half the difference of two documents is the standard error of their mean.
    np.testing.assert_allclose(gain.nats_error, [1.0, np.nan])
    np.testing.assert_allclose(gain.accuracy_error, [0.75, np.nan])
    assert gain.documents.tolist() == [2, 1]
    curve, _ = view_of("lagcopy(text=natural)").curves(answers, answers)
    # Student's quantile for 1 degree of freedom is 12.706.
    np.testing.assert_allclose(curve.high, [1.5 + 12.7062, np.nan], rtol=1e-6)
    # The second of two seeds that answer alike tells nothing more about documents.
    second = answers | {"seed": np.ones(15, int)}
    both = copy_gain({name: np.append(answers[name], second[name]) for name in answers})
    np.testing.assert_allclose(both.nats_error, gain.nats_error)
    assert both.documents.tolist() == [2, 1]
