import pytest

from ropewalk.evals.tasks.repeated import Repeated
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
