import numpy as np
import pytest

from evals.tasks.lagcopy import Lagcopy
from reporting.tasks.lagcopy import copy_gain
from tests.evals.helpers import make_documents, rows


def both(config, tokenizer, length, numbers, **options):
    """Documents of the natural text and of its control."""
    parameters = {"lag": options.pop("lag", None)}
    return zip(
        *(
            make_documents(
                Lagcopy(text=text, **parameters), config, tokenizer, length, numbers, **options
            )
            for text in ("natural", "control")
        ),
        strict=True,
    )


def test_a_given_lag_repeats_to_the_end(prose_config, prompt_tokenizer):
    task = Lagcopy(lag=7, answers=30)
    for document in make_documents(task, prose_config, prompt_tokenizer, 30, range(5)):
        tokens = document.tokens.tolist()
        assert len(tokens) == 31 and tokens[1:24] == tokens[8:31]
        assert len(set(tokens[1:8])) == 7
        # From the second id of the second copy on, each a piece of context after its first saying.
        assert document.answers.tolist() == [[start, 1, 6] for start in range(9, 31)]


@pytest.mark.parametrize("lag", [None, 41])
def test_natural_and_control_differ_in_the_first_saying_only(lag, prose_config, prompt_tokenizer):
    lags = []
    for natural, control in both(prose_config, prompt_tokenizer, 300, range(12), lag=lag):
        assert natural.number == control.number
        np.testing.assert_array_equal(natural.answers, control.answers)
        assert len(natural.tokens) == len(control.tokens) == 301
        lag_ = int(natural.answers[0, 2]) + 1
        lags.append(lag_)
        original, again = natural.tokens[-2 * lag_ : -lag_], natural.tokens[-lag_:]
        np.testing.assert_array_equal(original, again)
        np.testing.assert_array_equal(control.tokens[-lag_:], again)
        np.testing.assert_array_equal(control.tokens[: -2 * lag_], natural.tokens[: -2 * lag_])
        if lag_ > 5:
            assert (control.tokens[-2 * lag_ : -lag_] != original).mean() > 0.6
        # The second half of the second saying, id by id, to the end.
        starts = natural.answers[:, 0].tolist()
        assert starts == list(range(301 - (lag_ + 1) // 2, 301))
        assert set(natural.answers[:, 1].tolist()) == {1}
    assert len(lags) == 12
    assert set(lags) == {41} if lag else (max(lags) > 75 and len(set(lags)) > 8)


def test_a_passage_has_its_size_at_every_lag(prose_config, prompt_tokenizer):
    """At 300 tokens a passage of 16 lies up to 284 back; at shorter lags the lag repeats."""
    lags = []
    texts = "natural", "control"
    tasks = [Lagcopy(text=text, passage=16) for text in texts]
    documents = (
        make_documents(task, prose_config, prompt_tokenizer, 300, range(40)) for task in tasks
    )
    for natural, control in zip(*documents, strict=True):
        lag = int(natural.answers[0, 2]) + 1
        size = min(lag, 16)
        first = slice(301 - size - lag, 301 - lag)
        np.testing.assert_array_equal(natural.tokens[first], natural.tokens[-size:])
        others = np.ones(301, bool)
        others[first] = False
        np.testing.assert_array_equal(natural.tokens[others], control.tokens[others])
        assert lag < 6 or (natural.tokens[first] != control.tokens[first]).any()
        assert natural.answers[:, 0].tolist() == list(range(301 - (size + 1) // 2, 301))
        np.testing.assert_array_equal(natural.answers, control.answers)
        lags.append(lag)
    assert min(lags) < 16 and 150 < max(lags) <= 284


def test_long_documents_give_several_texts(prose_config, prompt_tokenizer):
    task = Lagcopy(text="natural", passage=8, crops=3)
    documents = make_documents(task, prose_config, prompt_tokenizer, 60, range(6))
    queries = [
        (document.number, document.first_query + query)
        for document in documents
        for query in range(len(document.answers))
    ]
    assert len(set(queries)) == len(queries)
    numbers = [document.number for document in documents]
    assert max(map(numbers.count, numbers)) == 3
    assert len({document.tokens.tobytes() for document in documents}) == len(documents)


def test_a_passage_is_refused_where_nothing_else_fills_the_context():
    with pytest.raises(ValueError, match="passage"):
        Lagcopy(passage=16)
    with pytest.raises(ValueError, match="crops"):
        Lagcopy(crops=2)


def test_copy_gain_by_hand():
    """Two documents at lag 10, one at lag 100 (no partner for its second answer), and strangers."""
    natural = [
        # document, query, distance, nll, right
        (0, 0, 9, 1.0, True),
        (0, 1, 9, 2.0, True),
        (1, 0, 9, 0.5, False),
        (2, 0, 99, 4.0, False),
        (2, 1, 99, 9.0, False),
    ]
    control = [
        (0, 0, 9, 3.0, False),
        (0, 1, 9, 5.0, True),
        (1, 0, 9, 1.0, True),
        (2, 0, 99, 4.5, False),
        (3, 0, 99, 9.0, False),
    ]
    document, query, distance, nll, right = zip(*natural, *control, *natural, strict=True)
    task = ["lagcopy(text='natural')"] * 5 + ["lagcopy(text='control')"] * 5 + ["lagcopy"] * 5
    constant = {"run": ["r"], "seed": [0], "step": [7], "rotary": ["nope"], "length": [512]}
    gain = copy_gain(
        rows(
            task=task, document=document, query=query, distance=distance, nll=nll,
            exact_match=right, **{name: value * 15 for name, value in constant.items()},
        )
    )  # fmt: skip
    np.testing.assert_allclose(gain.lag, [10, 100])
    # Document 0 gains (2 + 3) / 2 nats and half a token; document 1 half a nat and -1 token.
    np.testing.assert_allclose(gain.nats, [1.5, 0.5])
    np.testing.assert_allclose(gain.accuracy, [-0.25, 0])
    # Half the difference of two documents is the standard error of their mean.
    np.testing.assert_allclose(gain.nats_error, [1.0, np.nan])
    np.testing.assert_allclose(gain.accuracy_error, [0.75, np.nan])
    assert gain.documents.tolist() == [2, 1]


def test_seeds_of_one_name_are_documents_of_their_own():
    """Gains of 1 and 3 nats: 2 on average, half their difference its error."""
    gain = copy_gain(
        rows(
            task=["lagcopy(text=natural)", "lagcopy(text=control)"] * 2,
            seed=[0, 0, 1, 1],
            nll=[1.0, 2.0, 1.0, 4.0],
            exact_match=[True] * 4,
            run=["base=10"] * 4,
            rotary=["nope"] * 4,
            **{name: [8] * 4 for name in ("document", "query", "distance", "step", "length")},
        )
    )
    assert (gain.nats, gain.nats_error, gain.documents) == ([2], [1], [2])
