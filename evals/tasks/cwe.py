"""RULER's common words: the ten words of a numbered list that occur most often.

Templates of Hsieh et al. (arXiv 2404.06654), word for word, with one example in the prompt and the
official frequencies: 30 times against 3 (example: 10 against 3, of 40 words), and below 4096 tokens
6 against 1 (example: 3 against 1, of 20 words). Words are this repository's lists: single words, or
adjective-noun pairs where a context needs more words than there are single words.

Every word is one answer, after its number ("1."), teacher-forced in the order in which the words
first occur in the list. Officially the order is random and RULER counts the share of words found
anywhere in 120 decoded tokens. Teacher forcing needs one right order that a model can know, so the
example shows this order. A row states whether word i comes next, exactly, after the right words
before it: stricter than RULER's recall in order and form, more lenient after an error. `distance`
is measured from the word's last occurrence in the list.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS, NOUNS
from ropewalk.evals import prompts

_NUM_COMMON = 10
# RULER uses the higher frequencies from this length on.
_LONG = 4096
_SINGLE = tuple(sorted({*ADJECTIVES, *NOUNS, *HELD_OUT_NOUNS}))


class _Counts(NamedTuple):
    """Numbers of occurrences of common and other words, in the question and the example."""

    common: int
    other: int
    example_words: int
    example_common: int
    example_other: int


_FEW = _Counts(common=6, other=1, example_words=20, example_common=3, example_other=1)
_MANY = _Counts(common=30, other=3, example_words=40, example_common=10, example_other=3)


@functools.lru_cache(maxsize=2**16)
def _digits(tokenizer: Tokenizer, number: int) -> list[int]:
    (digits,) = keys.numbers(tokenizer, [number], task="cwe")
    return digits


@functools.lru_cache(maxsize=32)
def _sizes_of_numbers(tokenizer: Tokenizer, bits: int) -> np.ndarray:
    """Return how many ids the numbers 1 ... n have together, int `[2^bits]`."""
    texts = map(str, range(1, 2**bits))
    parts = texts if tokenizer.splits_digits else map(prompts.encoder(tokenizer), texts)
    return np.cumsum([0, *map(len, parts)])


def _words(tokenizer: Tokenizer, pairs: bool) -> keys.Pairs:
    if pairs:
        return keys.pairs(tokenizer, ADJECTIVES, NOUNS + HELD_OUT_NOUNS, (" ", "-"))
    return keys.pairs(tokenizer, _SINGLE, ("",), (" ", ""))


class _Prompt:
    """The parts of the template as ids."""

    def __init__(self, tokenizer: Tokenizer):
        encode = prompts.encoder(tokenizer)
        self.intro = encode(
            "Below is a numbered list of words. In these words, some appear more often than "
            "others. Memorize the ones that appear most often.\n"
        )
        self.question = encode(
            "\nQuestion: What are the 10 most common words in the above list?"
        ) + encode(" Answer: The top 10 words that appear most often in the list are:")
        self.space, self.dot, self.line = encode(" "), encode("."), encode("\n")
        self._tokenizer = tokenizer

    def numbered(self, index: int, word: list[int]) -> list[int]:
        """Return the ids of " 7. word"; the first item of a list has no space before it."""
        digits = _digits(self._tokenizer, index + 1)
        return self.space * (index > 0) + digits + self.dot + word

    def num_list_ids(self, count):
        """Return the number of ids of a list of `count` items without words; arrays work too."""
        sizes = _sizes_of_numbers(self._tokenizer, int(np.max(count)).bit_length())
        return count * len(self.space + self.dot) - len(self.space) + sizes[count]

    def num_ids(self, count, word_ids, common_ids: int):
        """Return the number of ids of a prompt of `count` items with its ten answers."""
        answers = len(self.space) + self.num_list_ids(_NUM_COMMON) + common_ids
        return len(self.intro + self.question) + self.num_list_ids(count) + word_ids + answers

    def ask(self, start: list[int], items: list[list[int]], common: list[list[int]], random):
        """Append a prompt with items in random order to `start`; common words are answers."""
        tokens = start + self.intro
        last = {}  # index of each word; in order of first occurrence
        for index, position in enumerate(random.permutation(len(items)).tolist()):
            word = items[position]
            tokens += self.numbered(index, word)
            last[tuple(word)] = len(tokens) - len(word)
        tokens += self.question + self.space
        answer_words = [word for word in map(list, last) if word in common]
        answers = [
            (self.numbered(i, []), word, last[tuple(word)]) for i, word in enumerate(answer_words)
        ]
        return prompts.ask(tokens, answers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cwe(prompts.PromptTask):
    """RULER's common words; see the module."""

    kind = "score"
    num_choices = len(_SINGLE)

    def least_length(self, context: TaskContext) -> int:
        """Return a length that fits one uncommon word, whatever words are drawn."""
        prompt, vocabulary = _Prompt(context.tokenizer), _words(context.tokenizer, False)
        counts = _counts(context.length)
        common = _NUM_COMMON * vocabulary.longest
        example = _NUM_COMMON * counts.example_common
        example += (counts.example_words - _NUM_COMMON) * counts.example_other
        count = _NUM_COMMON * counts.common + counts.other
        sizes = (prompt.num_ids(n, n * vocabulary.longest, common) for n in (example, count))
        return sum(sizes) + len(prompt.line)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the example, then the longest list that fits, and its ten common words."""
        tokenizer, random, counts = context.tokenizer, sample.random, _counts(context.length)
        prompt, vocabulary = _Prompt(tokenizer), _words(tokenizer, False)
        common, other = _draw_words(vocabulary, counts.example_words, random)
        items = common * counts.example_common + other * counts.example_other
        example = prompt.ask([tokenizer.bos_id], items, common, random)
        start = example.tokens.tolist() + prompt.line

        room = context.length + 1 - len(start)
        common, other = _draw_words(vocabulary, len(vocabulary), random)
        fitting = _num_fitting(prompt, common, other, counts, room)
        if fitting == len(other):
            vocabulary = _words(tokenizer, True)
            # The shortest item takes three ids.
            common, other = _draw_words(
                vocabulary, min(len(vocabulary), _NUM_COMMON + room // 3), random
            )
            fitting = _num_fitting(prompt, common, other, counts, room)
        items = common * counts.common + other[:fitting] * counts.other
        return prompt.ask(start, items, common, random)


def _counts(length: int) -> _Counts:
    return _FEW if length < _LONG else _MANY


def _draw_words(
    vocabulary: keys.Pairs, count: int, random
) -> tuple[list[list[int]], list[list[int]]]:
    """Draw ten words, and count - 10 others."""
    drawn = [
        vocabulary[index] for index in random.choice(len(vocabulary), count, replace=False).tolist()
    ]
    return drawn[:_NUM_COMMON], drawn[_NUM_COMMON:]


def _num_fitting(prompt, common, other, counts, room) -> int:
    """Return the number of other words that fit besides the common words; at least one."""
    common_ids = sum(map(len, common))
    items = _NUM_COMMON * counts.common + counts.other * np.arange(1, len(other) + 1)
    word_ids = counts.common * common_ids + counts.other * np.cumsum([*map(len, other)])
    return int(np.searchsorted(prompt.num_ids(items, word_ids, common_ids), room, side="right"))
