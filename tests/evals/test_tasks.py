"""Properties of every task that makes its documents from random numbers."""

import numpy as np
import pytest

from ropewalk import evals
from tests.evals.helpers import experiment, make_documents

SEVERAL = (
    "needle(haystack=needle)", "needle(values=3)", "needle(haystack=text,queries=3)",
    "needle(keys=3,queries=2,values=2,haystack=needle)", "needle(value_type=uuids,haystack=text)",
    "needle(key_type=uuids,value_type=uuids,haystack=needle)",
)  # fmt: skip
IN_WORDS = (
    "lines", "lines(template=official)", "needle", "needle(keys=4)", "needle(haystack=text)",
    "needle(haystack=text,keys=4)", "needle(haystack=text,cue=gkamradt)",
    "needle(haystack=text,cue=easy)", "passkey", "vt", "vt(hops=2)", "cwe", "fwe",
    *SEVERAL,
)  # fmt: skip
ALL = ("kv", "lagcopy", "lagcopy(lag=20)", "lagcopy(text=natural)", *IN_WORDS)


def floor(task, config, tokenizer) -> int:
    """The shortest length, as the task itself says it."""
    with pytest.raises(ValueError, match=r"does not fit length=3; the shortest") as error:
        make_documents(task, config, tokenizer, 3, range(1))
    assert str(error.value).startswith(task.partition("(")[0])
    return int(str(error.value).rpartition(" ")[2])


@pytest.mark.parametrize("task", ALL)
def test_questions_are_of_ids_inside_the_document(task, prose_config, prompt_tokenizer):
    config = prose_config
    shortest = floor(task, config, prompt_tokenizer)
    with pytest.raises(ValueError, match=f"length={shortest - 1}; the shortest.* is {shortest}$"):
        make_documents(task, config, prompt_tokenizer, shortest - 1, range(1))
    for more, numbers in ((0, range(200)), (1, range(3, 13)), (333, range(3, 13))):
        length = shortest + more
        result = make_documents(task, config, prompt_tokenizer, length, numbers)
        assert {*range(3, 13)} <= {document.number for document in result} <= {*numbers}
        for document in result:
            assert document.tokens.dtype == np.int32 and document.answers.dtype == np.int32
            assert len(document.tokens) <= length + 1
            assert (document.tokens == prompt_tokenizer.bos_id).nonzero()[0].tolist() == [0]
            for start, count, distance in document.answers.tolist():
                # What is asked for was said `distance` before the position that must answer.
                source, tokens = start - 1 - distance, document.tokens
                assert 1 <= source < start <= start + count <= len(tokens)
                assert (tokens[source : source + count] == tokens[start : start + count]).all()
    # As long as possible: what is missing is less than one more piece of the haystack. The words
    # of fwe all grow in number together, and a UUID has 36 characters.
    missing = [length + 1 - len(document.tokens) for document in result]
    assert max(missing) < (110 if "uuids" in task else 80 if task == "fwe" else 40)
    assert 0 <= evals.parse(task).chance(prompt_tokenizer) < 0.05


@pytest.mark.parametrize("task", ALL)
def test_documents_are_pure_functions_and_differ(task, prose_config, prompt_tokenizer):
    config = prose_config
    length = floor(task, config, prompt_tokenizer) + 100

    def keyed(numbers, config=config, length=length):
        made = make_documents(task, config, prompt_tokenizer, length, numbers)
        return {(d.number, d.first_query): (d.tokens.tobytes(), d.answers.tolist()) for d in made}

    many = keyed(range(12))
    assert len({tokens for tokens, _ in many.values()}) == len(many)
    # Nor have they one answer, which could be known without reading; but for Dolores Park.
    answers = {
        np.frombuffer(tokens, np.int32)[start : start + count].tobytes()
        for tokens, spans in many.values()
        for start, count, _ in spans
    }
    assert len(answers) >= 12 or "cue" in task
    # Alone or among others, in whatever order they are made.
    assert keyed(range(7, 9)) == {key: value for key, value in many.items() if key[0] in (7, 8)}
    other_seed = experiment(config.data, seed=1)
    for other in (keyed(range(12), other_seed), keyed(range(12), length=length + 60)):
        shared = {tokens for tokens, _ in other.values()} & {tokens for tokens, _ in many.values()}
        assert not shared
