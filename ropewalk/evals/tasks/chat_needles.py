"""Numbers hidden in a long text, asked for one after another in the chat template of the model.

RULER's multikey needles (Hsieh et al., arXiv 2404.06654), with its templates and haystack of five
repeated sentences, as a conversation: the first message has the text with all needles, and every
message asks for one of them, in random order. An answer begins with the official answer prefix and
is teacher-forced, so it is also an example for the next one. Distances are spread evenly over
octaves, so one document measures all distances of its length. The distance is from the first digit
in the text to the position that predicts it.
"""

import dataclasses

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext, draw_over_octaves
from ropewalk.data.tokenizer import Tokenizer
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


def _start(tokenizer: Tokenizer) -> list[int]:
    """Return the ids from BOS up to the text."""
    return prompts.turns(tokenizer).before + prompts.parts(tokenizer, _INTRO)[0]


def _question(tokenizer: Tokenizer, name: list[int]) -> list[int]:
    """Return the ids of a question and of its answer's prefix."""
    question, answer = (
        prompts.fill(prompts.parts(tokenizer, template), name) for template in (_QUESTION, _ANSWER)
    )
    return question + prompts.turns(tokenizer).to_answer + answer


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
        tokenizer = context.tokenizer
        name, number = [0] * prompts.names(tokenizer).longest, [0] * _DIGITS
        needle = prompts.fill(prompts.parts(tokenizer, _NEEDLE), name, number)
        message = _question(tokenizer, name) + number + prompts.turns(tokenizer).to_question
        size = len(needle + message + prompts.noise_line(tokenizer))
        return len(_start(tokenizer)) + self.needles * size

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the text, then a message for each needle."""
        tokenizer, random, count = context.tokenizer, sample.random, self.needles
        names, line = prompts.names(tokenizer), prompts.noise_line(tokenizer)
        start = _start(tokenizer)
        values = range(10 ** (_DIGITS - 1), 10**_DIGITS)
        around = prompts.parts(tokenizer, _NEEDLE)
        drawn, needles = keys.draw_entries(
            context, sample, names, around, values, task="chat_needles", count=count
        )
        questions = [_question(tokenizer, names[key]) for key in drawn]
        numbers = [needle.number for needle in needles]
        to_question = prompts.turns(tokenizer).to_question
        questions[1:] = [to_question + part for part in questions[1:]]
        # From the end of the text to each answer, and the size of all messages.
        sizes = np.array([list(map(len, parts)) for parts in (questions, numbers)])
        ends = sizes.sum(axis=0).cumsum()
        size = sum(len(needle.ids) for needle in needles)
        room = context.length + 1 - len(start) - size - ends[-1]
        num_lines = room // len(line)
        text = num_lines * len(line) + size

        farthest = ends[0] - 1 + text
        nearest = min(max(ends[0] - 1, self.nearest or 0), farthest)
        distances = draw_over_octaves(random, count, nearest, farthest)
        # The line before which each needle stands; needles before it shift it, so start with far.
        begins = text + ends - sizes[1] - 1 - random.permutation(distances)
        order = np.argsort(begins, kind="stable")
        earlier, lines, places = 0, 0, []
        for index in order.tolist():
            missing = begins[index] - earlier - lines * len(line)
            lines += int(np.clip(np.rint(missing / len(line)), 0, num_lines - lines))
            earlier += len(needles[index].ids)
            places.append(lines * len(line))
        entries = [needles[i] for i in order]
        tokens, indices = prompts.hide(start, line * num_lines, places, entries)
        starts = np.array(indices)[np.argsort(order)].tolist()
        return prompts.append_answers(tokens, zip(questions, numbers, starts, strict=True))
