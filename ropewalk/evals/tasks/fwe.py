"""RULER's frequent words: the three most frequent words of a coded text.

Template of Hsieh et al. (arXiv 2404.06654), word for word. Words of six random letters occur with
zeta-distributed frequencies, alpha = 2. The most frequent "word" is "...", which the prompt says to
ignore, so the answers have ranks 2, 3 and 4. There is a word for every 50 tokens of context, at
least five. The text is as long as fits while ranks 2 to 5 all differ in frequency (officially they
may tie, which leaves no right answer).

Every word is one answer, teacher-forced from the most frequent to the least, with a space between
them. A row states whether word i comes next, exactly, after the right words before it; RULER counts
the share of words found anywhere in 50 decoded tokens, in any order. `distance` is measured from
the word's last occurrence in the text.
"""

import bisect
import dataclasses
import functools
import math
import string

import numpy as np

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts

_ALPHA = 2.0
_ZETA = math.pi**2 / 6  # zeta(2), as 1/1 + 1/4 + 1/9 + ...
_LETTERS = 6
# Fewest draws, including draws in zeta's tail, for which ranks 2 to 5 differ in frequency.
_FEWEST = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fwe(prompts.PromptTask):
    """RULER's frequent words; see the module."""

    kind = "score"
    num_choices = 26**_LETTERS

    def least_length(self, context: TaskContext) -> int:
        """Return the length of a text in which ranks 2 to 5 differ in frequency."""
        intro, question, dots = _parts(context.tokenizer)
        # A letter is one id at most, and so is the space before a word.
        longest = np.array([len(dots)] + [1 + _LETTERS] * 4)
        fewest = int(_counts(_FEWEST, 5) @ longest) + 3 * (1 + _LETTERS)
        return len(intro) + fewest + len(question) - 1

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the coded text, the question, and the three words."""
        intro, question, dots = _parts(context.tokenizer)
        count = max(context.length // 50, 5) - 1
        vocabulary = prompts.random_words(context, sample, string.ascii_lowercase, _LETTERS, count)
        common = vocabulary[:3]
        room = context.length + 1 - len(intro + question) - sum(map(len, common))
        counts = _fitting([dots, *vocabulary], room)
        ranks = sample.random.permutation(np.repeat(np.arange(len(counts)), counts))
        tokens, last = list(intro), {}
        for rank in ranks.tolist():
            last[rank] = len(tokens)
            tokens += vocabulary[rank - 1] if rank else dots
        answers = [([], word, last[rank]) for rank, word in enumerate(common, start=1)]
        return prompts.append_answers(tokens + question, answers)


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of the introduction, the question and the dots."""
    encode = prompts.encoder(tokenizer)
    intro = tokenizer.encode(
        "Read the following coded text and track the frequency of each coded word. Find the "
        "three most frequently appeared coded words."
    )
    question = encode(
        "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are "
        "the three most frequently appeared words in the above coded text?"
    ) + encode(
        " Answer: According to the coded text above, the three most frequently appeared words are:"
    )
    return [tokenizer.bos_id, *intro], question, encode(" ...")


def _counts(drawn: int, num_words: int) -> np.ndarray:
    """Return the frequency of each rank, int `[num_words]`, rounded as in RULER."""
    return (drawn * np.arange(1, num_words + 1) ** -_ALPHA / _ZETA).astype(int)


def _fitting(vocabulary: list[list[int]], room: int) -> np.ndarray:
    """Return the counts of the longest text in `room` ids whose ranks 2 to 5 differ."""
    sizes = np.array([len(word) for word in vocabulary])

    def size(drawn: int) -> int:
        return int(_counts(drawn, len(vocabulary)) @ sizes)

    # Rank 1 alone is 6/10 of all draws, so two draws per id never fit.
    drawn = bisect.bisect_right(range(2 * room), room, key=size) - 1
    while len(set(_counts(drawn, len(vocabulary))[1:5].tolist())) < 4:
        drawn -= 1
    return _counts(drawn, len(vocabulary))
