import re

from evals.tasks.passkey import Passkey
from tests.evals.helpers import make_documents

GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)
PATTERN = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.\n"
    r"(?P<before>.*)\nThe pass key is (?P<key>[1-9]\d{4}). Remember it. (?P=key) is the pass key.\n"
    r"(?P<after>.*)\nWhat is the pass key\? The pass key is (?P=key)"
)


def test_the_prompt_is_landmark_attentions(prose_config, prompt_tokenizer):
    endless = " ".join([GARBAGE] * 30)
    keys, befores = set(), set()
    for document in make_documents(Passkey(), prose_config, prompt_tokenizer, 500, range(40)):
        assert len(document.tokens) == 501
        match = re.fullmatch(PATTERN, prompt_tokenizer.decode(document.tokens))
        assert match
        assert endless.startswith(match["before"]) and endless.startswith(match["after"])
        keys.add(match["key"])
        befores.add(len(match["before"]))
        ((start, count, distance),) = document.answers.tolist()
        assert (start, count) == (496, 5)
        # From the second time the key is said.
        between = prompt_tokenizer.decode(document.tokens[start - 1 - distance : start])
        assert between.startswith(f"{match['key']} is the pass key.\n")
    assert len(keys) == 40 and len(befores) > 25
