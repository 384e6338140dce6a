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


class _List(NamedTuple):
    """Numbers of different words of a list, and of occurrences of common and other words."""

    words: int
    common: int
    other: int

    @property
    def size(self) -> int:
        """Number of items."""
        return _NUM_COMMON * self.common + (self.words - _NUM_COMMON) * self.other

    def items(self, words: list[list[int]]) -> list[list[int]]:
        """Return the items of a list of words, of which the common ones come first."""
        return words[:_NUM_COMMON] * self.common + words[_NUM_COMMON:] * self.other


# The example, and the shortest question.
_FEW = _List(words=20, common=3, other=1), _List(words=11, common=6, other=1)
_MANY = _List(words=40, common=10, other=3), _List(words=11, common=30, other=3)


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

    def make_document(
        self, start: list[int], items: list[list[int]], words: list[list[int]], random
    ):
        """Append a prompt with items in random order to `start`; its first words are answers."""
        tokens = start + self.intro
        last = {}  # index of each word; in order of first occurrence
        for index, position in enumerate(random.permutation(len(items)).tolist()):
            word = items[position]
            tokens += self.numbered(index, word)
            last[tuple(word)] = len(tokens) - len(word)
        tokens += self.question + self.space
        common = words[:_NUM_COMMON]
        answer_words = [word for word in map(list, last) if word in common]
        answers = [
            (self.numbered(i, []), word, last[tuple(word)]) for i, word in enumerate(answer_words)
        ]
        return prompts.append_answers(tokens, answers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cwe(prompts.PromptTask):
    """RULER's common words; see the module."""

    kind = "score"
    num_choices = len(_SINGLE)

    def least_length(self, context: TaskContext) -> int:
        """Return a length that fits one uncommon word, whatever words are drawn."""
        prompt, longest = _Prompt(context.tokenizer), _words(context.tokenizer, False).longest
        lists = _FEW if context.length < _LONG else _MANY
        sizes = [prompt.num_ids(x.size, x.size * longest, _NUM_COMMON * longest) for x in lists]
        return sum(sizes) + len(prompt.line)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the example, then the longest list that fits, and its ten common words."""
        tokenizer, random = context.tokenizer, sample.random
        example, question = _FEW if context.length < _LONG else _MANY
        prompt, vocabulary = _Prompt(tokenizer), _words(tokenizer, False)
        words = _draw_words(vocabulary, example.words, random)
        first = prompt.make_document([tokenizer.bos_id], example.items(words), words, random)
        start = first.tokens.tolist() + prompt.line

        room = context.length + 1 - len(start)
        words = _draw_words(vocabulary, len(vocabulary), random)
        fitting = _num_fitting(prompt, words, question, room)
        if fitting == len(words):
            vocabulary = _words(tokenizer, True)
            # The shortest item takes three ids.
            count = min(len(vocabulary), _NUM_COMMON + room // 3)
            words = _draw_words(vocabulary, count, random)
            fitting = _num_fitting(prompt, words, question, room)
        return prompt.make_document(start, question.items(words[:fitting]), words, random)


def _draw_words(vocabulary: keys.Pairs, count: int, random) -> list[list[int]]:
    drawn = random.choice(len(vocabulary), count, replace=False).tolist()
    return [vocabulary[index] for index in drawn]


def _num_fitting(prompt: _Prompt, words: list[list[int]], question: _List, room: int) -> int:
    """Return the number of words that fit, at least one besides the common words."""
    sizes = np.array([*map(len, words)])
    common_ids, num_words = sizes[:_NUM_COMMON].sum(), np.arange(_NUM_COMMON + 1, len(words) + 1)
    items = question._replace(words=num_words).size
    word_ids = question.common * common_ids + question.other * sizes[_NUM_COMMON:].cumsum()
    num_ids = prompt.num_ids(items, word_ids, common_ids)
    return _NUM_COMMON + int(np.searchsorted(num_ids, room, side="right"))
