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

from data.tokenizer import Tokenizer
from evals import prompts
from evals.task import Document, Task
from experiment.config import ExperimentConfig

_NAME_LETTERS = 5
_EXAMPLE_LETTERS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vt(Task):
    """See the module.

    Attributes:
      hops: assignments of a variable to the next; hops + 1 variables are asked for.
    """

    kind = "score"
    hops: int = 4

    def __post_init__(self):
        if self.hops < 1:
            raise ValueError(f"vt needs hops of at least 1, got hops={self.hops}")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        line = prompts.encoder(tokenizer)(prompts.NOISE + "\n")
        num_lines = self.hops + 1
        # A letter is one id at most, and so is the space before a name.
        longest = (
            [[0] * (1 + _EXAMPLE_LETTERS)] * num_lines,
            [[0] * (1 + _NAME_LETTERS)] * num_lines,
        )
        size = 1 + sum(
            len(self._asked(tokenizer, names, 10**4, [line] * num_lines, list(range(num_lines)))[0])
            for names in longest
        )
        separator = len(prompts.encoder(tokenizer)("\n\n"))
        prompts.check_length("vt", length, size + separator - 1)
        return [
            self._document(tokenizer, length, number, config.evals.seed, line) for number in numbers
        ]

    def _document(self, tokenizer, length, number, seed, line) -> Document:
        random = prompts.generator(self, seed, length, number)
        encode = prompts.encoder(tokenizer)
        num_lines = self.hops + 1

        names = [
            [encode(" " + name) for name in _names(random, num_lines, letters)]
            for letters in (_EXAMPLE_LETTERS, _NAME_LETTERS)
        ]
        values = random.choice(90_000, size=2, replace=False) + 10_000
        places = np.sort(random.choice(num_lines, size=num_lines, replace=False)).tolist()
        example, _ = self._asked(tokenizer, names[0], values[0], [line] * num_lines, places)
        start = [tokenizer.bos_id, *example, *encode("\n\n")]

        least, _ = self._asked(tokenizer, names[1], values[1], [], [0] * num_lines)
        count = (length + 1 - len(start) - len(least)) // len(line)
        places = np.sort(random.choice(count, size=num_lines, replace=False)).tolist()
        tokens, answers = self._asked(tokenizer, names[1], values[1], [line] * count, places)
        return Document(
            tokens=np.array(start + tokens, np.int32),
            answers=np.add(answers, [len(start), 0, 0]).astype(np.int32),
            number=number,
        )

    def _asked(self, tokenizer, names, value, lines, places):
        """Ids of a prompt with its answers; and the answers: start, number of ids, distance."""
        encode = prompts.encoder(tokenizer)
        digits = prompts.digits(tokenizer, value, task="vt")
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
        tokens += prompts.digits(tokenizer, len(names), task="vt")
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


def _names(random: np.random.Generator, count: int, letters: int) -> list[str]:
    """Different words of capital letters."""
    numbers = random.choice(26**letters, size=count, replace=False)
    rows = numbers[:, None] // 26 ** np.arange(letters) % 26
    return ["".join(string.ascii_uppercase[letter] for letter in row) for row in rows]
