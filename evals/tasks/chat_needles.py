"""Numbers hidden in a long text, asked for one after another in the chat template of the model.

RULER's multikey needles (Hsieh et al., arXiv 2404.06654), with its templates and haystack of five
repeated sentences, as a conversation: the first message has the text with all needles, and every
message asks for one of them, in random order. An answer begins with the official answer prefix and
is teacher-forced, so it is also an example for the next one. Distances are spread evenly over
octaves, so one document measures all distances of its length. The distance is from the first digit
in the text to the position that predicts it.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from ropewalk.data import chat, keys
from ropewalk.data.task import Document, Sample, TaskContext, evenly, possible
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS
from ropewalk.evals import prompts
from ropewalk.utils.checks import Count

_INTRO = (
    "Some special magic numbers are hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the numbers afterwards.\n"
)
_NEEDLE = "One of the special magic numbers for{} is: {}.\n"
_QUESTION = "What is the special magic number for{} mentioned in the provided text?"
_ANSWER = "The special magic number for{} mentioned in the provided text is "
_DIGITS = 7


class _Wording(NamedTuple):
    """Ids of the parts of a conversation, encoded once."""

    start: list[int]  # BOS up to the text
    needle: list[list[int]]  # around key and value
    question: list[list[int]]  # around the key
    answer: list[list[int]]  # around the key, up to the value
    turns: chat.Turns
    names: keys.Pairs

    def ask(self, name: list[int]) -> list[int]:
        """Return the ids of a question and of its answer's prefix."""
        question, answer = (before + name + after for before, after in (self.question, self.answer))
        return question + self.turns.to_answer + answer


def _wording(tokenizer: Tokenizer) -> _Wording:
    return _encode(tokenizer, tokenizer.chat_template)


@functools.lru_cache(maxsize=8)
def _encode(tokenizer: Tokenizer, template: str | None) -> _Wording:
    # Tokenizers of one file may have different templates.
    turns = chat.turns(tokenizer)
    return _Wording(
        turns.before + prompts.encoder(tokenizer)(_INTRO),
        prompts.parts(tokenizer, _NEEDLE),
        prompts.parts(tokenizer, _QUESTION),
        prompts.parts(tokenizer, _ANSWER),
        turns,
        keys.pairs(tokenizer, ADJECTIVES, HELD_OUT_NOUNS, (" ", "-")),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatNeedles(prompts.PromptTask):
    """Needles in the model's chat template; see the module.

    Attributes:
      needles: numbers in the text, and questions.
      nearest: shortest distance, tokens, as far as the messages permit; None: their own.
    """

    kind = "retrieval"
    num_choices = 9 * 10**6

    needles: Count = 8
    nearest: Count | None = None

    def least_length(self, context: TaskContext) -> int:
        """Return the length with one line of noise for each needle."""
        wording = _wording(context.tokenizer)
        name = [0] * wording.names.longest
        size = sum(map(len, wording.needle)) + len(name) + 2 * _DIGITS + len(wording.ask(name))
        size += len(wording.turns.to_question) + len(prompts.noise_line(context.tokenizer))
        return len(wording.start) + self.needles * size

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the text, then a message for each needle."""
        tokenizer, random, count = context.tokenizer, sample.random, self.needles
        wording, line = _wording(tokenizer), prompts.noise_line(tokenizer)
        values = range(10 ** (_DIGITS - 1), 10**_DIGITS)
        drawn, needles = keys.draw_entries(
            context, sample, wording.names, wording.needle, values, task="chat_needles", count=count
        )
        questions = [wording.ask(wording.names[key]) for key in drawn]
        numbers = [needle.number for needle in needles]
        questions[1:] = [wording.turns.to_question + part for part in questions[1:]]
        # From the end of the text to each answer, and the size of all messages.
        sizes = np.array([list(map(len, parts)) for parts in (questions, numbers)])
        ends = sizes.sum(axis=0).cumsum()
        size = sum(len(needle.ids) for needle in needles)
        room = context.length + 1 - len(wording.start) - size - ends[-1]
        num_lines = room // len(line)
        text = num_lines * len(line) + size

        farthest = ends[0] - 1 + text
        nearest = min(max(ends[0] - 1, self.nearest or 0), farthest)
        distances = evenly(random, count, *possible(nearest, farthest, context.distances))
        # The line before which each needle stands; needles before it shift it, so start with far.
        begins = text + ends - sizes[1] - 1 - random.permutation(distances)
        tokens, lines, starts = list(wording.start), 0, [0] * count
        for index in np.argsort(begins, kind="stable").tolist():
            missing = begins[index] - (len(tokens) - len(wording.start))
            added = int(np.clip(np.rint(missing / len(line)), 0, num_lines - lines))
            tokens += line * added + needles[index].before
            lines, starts[index] = lines + added, len(tokens)
            tokens += needles[index].number + needles[index].after
        tokens += line * (num_lines - lines)
        return prompts.ask(tokens, list(zip(questions, numbers, starts, strict=True)))
