"""RULER's variable tracking: which variables hold a value, through a chain of assignments.

Templates of Hsieh et al. (arXiv 2404.06654), word for word, with one example in the prompt: three
letters a name and five lines of noise in the example (the fewest the official generator makes; it
fills up to 500 tokens), five letters and as many lines as fit in the question.

Every variable is one answer, teacher-forced in the order of the chain: a row states whether the
model names variable i next, exactly, after the right names before it. RULER decodes 30 tokens and
counts the share of names that occur anywhere in them, in any order and any case. The mean of
`exact_match` is stricter than RULER's recall in order and form, and more lenient because an error
does not affect later answers. `distance` is measured from the variable's assignment.
"""

import dataclasses
import string
from collections.abc import Sequence

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts
from ropewalk.utils.checks import Count

_NAME_LETTERS = 5
_EXAMPLE_LETTERS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vt(prompts.PromptTask):
    """Variable tracking; see the module.

    Attributes:
      hops: assignments of a variable to the next; the answers are hops + 1 variables.
    """

    kind = "score"
    num_choices = 26**_NAME_LETTERS
    hops: Count = 4

    def least_length(self, context: TaskContext) -> int:
        """Return the length of the example and a question with as few lines of noise."""
        num_lines, size = self.hops + 1, len(prompts.encoder(context.tokenizer)("\n\n"))
        for letters in (_EXAMPLE_LETTERS, _NAME_LETTERS):
            # A letter is one id at most, and so is the space before a name.
            names = [[0] * (1 + letters)] * num_lines
            size += len(
                _prompt([], context.tokenizer, names, 10**4, range(num_lines), num_lines).tokens
            )
        return size

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the example, then the question with as many lines as fit."""
        tokenizer, random, num_lines = context.tokenizer, sample.random, self.hops + 1
        encode = prompts.encoder(tokenizer)
        example_names, names = (
            prompts.random_words(context, sample, string.ascii_uppercase, letters, num_lines)
            for letters in (_EXAMPLE_LETTERS, _NAME_LETTERS)
        )
        example_value, value = random.choice(90_000, size=2, replace=False) + 10_000
        places = np.sort(random.choice(num_lines, size=num_lines, replace=False))
        start = [tokenizer.bos_id]
        example = _prompt(start, tokenizer, example_names, example_value, places, num_lines)
        start = example.tokens.tolist() + encode("\n\n")

        shortest = _prompt(start, tokenizer, names, value, [0] * num_lines, 0)
        count = (context.length + 1 - len(shortest.tokens)) // len(prompts.noise_line(tokenizer))
        places = np.sort(random.choice(count, size=num_lines, replace=False))
        return _prompt(start, tokenizer, names, value, places, count)


def _prompt(
    start: list[int],
    tokenizer: Tokenizer,
    names: list[list[int]],
    value: int,
    before: Sequence[int] | np.ndarray,
    num_lines: int,
) -> Document:
    """Append a prompt with its answers to `start`.

    Args:
      names: ids of the variables, in the order of the chain.
      value: value of the first variable.
      places: number of lines of noise before each assignment.
      num_lines: number of lines of noise.
    """
    encode, line = prompts.encoder(tokenizer), prompts.noise_line(tokenizer)
    (digits,), (count,) = (keys.numbers(tokenizer, [n], task="vt") for n in (value, len(names)))
    start = start + encode(
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
    )
    values = [digits + encode("\n"), *(encode("VAR") + name + encode(" \n") for name in names)]
    entries = [
        keys.Entry(encode("VAR"), name, encode(" = ") + assigned)
        for name, assigned in zip(names, values, strict=False)
    ]
    hay, places = line * num_lines, [len(line) * int(lines) for lines in before]
    tokens, starts = prompts.hide(start, hay, places, entries)
    question = prompts.parts(
        tokenizer, "Question: Find all variables that are assigned the value {} in the text above."
    )
    answer = prompts.parts(
        tokenizer,
        " Answer: According to the chain(s) of variable assignment in the text above, {} variables "
        "are assigned the value {}, they are: ",
    )
    tokens += prompts.fill(question, digits) + prompts.fill(answer, count, digits)
    return prompts.append_answers(
        tokens, [([], name, position) for name, position in zip(names, starts, strict=True)]
    )
