import re

from ropewalk.evals.tasks.phonebook import Phonebook
from tests.evals.helpers import make_documents


def test_every_name_once_then_two_shots_then_the_question(prose_config, prompt_tokenizer):
    entry = r"[A-Z][a-z]+ [A-Z][a-z]+: [6-9]\d{9}"
    asked_at = []
    for document in make_documents(Phonebook(), prose_config, prompt_tokenizer, 700, range(30)):
        text = prompt_tokenizer.decode(document.tokens)
        assert re.fullmatch(rf"(?:{entry}\n)+\n{entry}\n{entry}\n\n{entry}", text)
        book, shots, question = text.split("\n\n")
        book, shots = book.split("\n"), shots.split("\n")
        names = [line.partition(":")[0] for line in book]
        assert len(set(names)) == len(names) > 15
        assert len({*shots, question}) == 3 and {*shots, question} <= set(book)
        asked_at.append(book.index(question) / len(book))
        ((start, count, _),) = document.answers.tolist()
        answer = prompt_tokenizer.decode(document.tokens[start : start + count])
        assert answer == question.partition(": ")[2] and start + count == len(document.tokens)
    assert min(asked_at) < 0.3 < 0.8 < max(asked_at)
