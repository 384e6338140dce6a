import pytest

from evals.tasks.repeated import Repeated
from tests.evals.helpers import make_documents


def documents(text_config, text_tokenizer, length, **parameters):
    """Make documents of two texts; the trained length is 64."""
    return make_documents(Repeated(**parameters), text_config, text_tokenizer, length, range(2))


@pytest.mark.parametrize(("name", "lag"), [("trained", 64), ("half", 32)])
def test_the_text_is_said_again_and_again(name, lag, text_config, text_tokenizer):
    plain = documents(text_config, text_tokenizer, 300)
    result = documents(text_config, text_tokenizer, 300, lag=name)
    for document, other in zip(result, plain, strict=True):
        assert document.number == other.number and len(document.tokens) == 301
        assert document.tokens[: lag + 1].tolist() == other.tokens[: lag + 1].tolist()
        assert document.tokens[lag + 1 :].tolist() == document.tokens[1:-lag].tolist()
        assert (document.tokens == text_tokenizer.bos_id).sum() == 1
        starts, count, distance = document.answers.T
        assert set(distance[starts <= lag].tolist()) == {0} and (count == 1).all()
        assert set(distance[starts > lag].tolist()) == {lag}
        assert (document.tokens[starts] == document.tokens[starts - distance]).all()
        # The same places in the text as it is, where nothing is repeated.
        assert other.answers[:, 0].tolist() == starts.tolist() and not other.answers[:, 2].any()


def test_places_are_spread_over_the_length_and_fixed(text_config, text_tokenizer):
    first, other = documents(text_config, text_tokenizer, 320)
    for document in (first, other):
        assert ((document.answers[:, 0] - 1) // 5).tolist() == list(range(64))
    assert first.answers[:, 0].tolist() != other.answers[:, 0].tolist()
    again = documents(text_config, text_tokenizer, 320)[0]
    assert again.answers.tolist() == first.answers.tolist()
    every = documents(text_config, text_tokenizer, 80, tokens=80)[0]
    assert every.answers[:, 0].tolist() == list(range(1, 81))
