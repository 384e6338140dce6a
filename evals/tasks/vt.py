"""RULER's variable tracking: which variables hold a value, through a chain of assignments.

Templates of Hsieh et al. (arXiv 2404.06654), word for word, with one example in the prompt: three
letters a name and five lines of noise in the example (the fewest the official generator makes; it
fills up to 500 tokens), five letters and as many lines as fit in the question.

Every variable is one answer, teacher-forced in the order of the chain: a row says whether the
model names variable i next, exactly, given the right ones before it. RULER decodes 30 tokens and
counts the share of names that occur anywhere in them, in any order and any case. The mean of
`exact_match` is that recall made stricter in order and form, and more lenient in that an error does
not spoil what follows. `distance` is from the variable's own assignment.
"""

import dataclasses
import string

import numpy as np

from data import keys
from data.task import Asked, Document, Draw
from data.tokenizer import Tokenizer
from evals import prompts
from evals.prompts import PromptTask
from settings.checks import Count, check

_NAME_LETTERS = 5
_EXAMPLE_LETTERS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vt(PromptTask):
    """See the module.

    Attributes:
      hops: assignments of a variable to the next; hops + 1 variables are asked for.
    """

    kind = "score"
    hops: Count = 4

    def __post_init__(self):
        check(self)

    def least_length(self, asked: Asked) -> int:
        """Of the example and a question with as few lines of noise."""
        tokenizer, num_lines = asked.tokenizer, self.hops + 1
        line = prompts.encoder(tokenizer)(prompts.NOISE + "\n")
        size = 0
        for letters in (_EXAMPLE_LETTERS, _NAME_LETTERS):
            # A letter is one id at most, and so is the space before a name.
            names, places = [[0] * (1 + letters)] * num_lines, list(range(num_lines))
            size += len(self._asked(tokenizer, names, 10**4, [line] * num_lines, places)[0])
        return size + len(prompts.encoder(tokenizer)("\n\n"))

    def document(self, asked: Asked, draw: Draw) -> Document:
        """The example, then the question with as many lines as fit."""
        tokenizer, random = asked.tokenizer, draw.random
        encode = prompts.encoder(tokenizer)
        line, num_lines = encode(prompts.NOISE + "\n"), self.hops + 1

        names = [
            [
                encode(" " + name)
                for name in prompts.words(random, string.ascii_uppercase, letters, num_lines)
            ]
            for letters in (_EXAMPLE_LETTERS, _NAME_LETTERS)
        ]
        values = random.choice(90_000, size=2, replace=False) + 10_000
        places = np.sort(random.choice(num_lines, size=num_lines, replace=False)).tolist()
        example, _ = self._asked(tokenizer, names[0], values[0], [line] * num_lines, places)
        start = [tokenizer.bos_id, *example, *encode("\n\n")]

        least, _ = self._asked(tokenizer, names[1], values[1], [], [0] * num_lines)
        count = (asked.length + 1 - len(start) - len(least)) // len(line)
        places = np.sort(random.choice(count, size=num_lines, replace=False)).tolist()
        tokens, answers = self._asked(tokenizer, names[1], values[1], [line] * count, places)
        return Document.of(start + tokens, np.add(answers, [len(start), 0, 0]))

    def _asked(self, tokenizer, names, value, lines, places):
        """Ids of a prompt with its answers; and the answers: start, number of ids, distance."""
        encode = prompts.encoder(tokenizer)
        (digits,) = keys.digits(tokenizer, [value], task="vt")
        tokens = encode(
            "Memorize and track the chain(s) of variable assignment hidden in the following "
            "text.\n\n"
        )
        said = []
        for index, place in enumerate(places):
            for line in lines[places[index - 1] if index else 0 : place]:
                tokens += line
            tokens += encode("VAR")
            said.append(len(tokens))
            tokens += names[index] + encode(" = ")
            if index:
                tokens += encode("VAR") + names[index - 1] + encode(" \n")
            else:
                tokens += digits + encode("\n")
        for line in lines[places[-1] :]:
            tokens += line
        tokens += encode("Question: Find all variables that are assigned the value ") + digits
        tokens += encode(" in the text above.")
        tokens += encode(
            " Answer: According to the chain(s) of variable assignment in the text above, "
        )
        tokens += keys.digits(tokenizer, [len(names)], task="vt")[0]
        tokens += encode(" variables are assigned the value ") + digits
        tokens += encode(", they are: ")
        answers = []
        for name, place in zip(names, said, strict=True):
            answers.append((len(tokens), len(name), len(tokens) - 1 - place))
            tokens += name
        return tokens, answers

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / 26**_NAME_LETTERS
