"""LongEval's lines (LongChat, 2023): retrieval of the number of a named line.

The main metric of Men et al. (arXiv 2405.14591). `template`:

    completion  lines, then the start of some of them again, whose numbers are the answers: there
                is no question in words, so base models can answer, and small models can learn it
    official    LongEval's prompt word for word, with its question at the end, then the cue that
                LongChat gave to its base model, 'Line <red-fox>: <REGISTER_CONTENT> is', and " <"

Numbers have five digits, so that all lines are equally hard. LongEval decodes 100 tokens and takes
their last number; here the first ids after the cue must be the number's.
"""

import dataclasses
from typing import Literal

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tasks import lines
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS
from ropewalk.evals import prompts

_INTRO = (
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. For each "
    "line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, I will "
    "ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. Now the "
    "record start:\n\n"
)
_LINE = "line{}: REGISTER_CONTENT is <{}>\n"
_QUESTION = (
    "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line{}? I need the "
    "number. Line <{}>: <REGISTER_CONTENT> is <"
)
_WORDS = ADJECTIVES, HELD_OUT_NOUNS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(lines.Lines):
    """LongEval's lines; see the module.

    Attributes:
      template: "completion" or "official".
    """

    template: Literal["completion", "official"] = "completion"

    def __post_init__(self):
        super().__post_init__()
        if self.template == "official" and self.answers != lines.Lines.answers:
            raise ValueError(
                "lines(answers=...) needs template=completion: an official prompt has one answer"
            )

    def least_length(self, context: TaskContext) -> int:
        """Return the length of two lines and the question."""
        if self.template == "completion":
            return super().least_length(context)
        tokenizer = context.tokenizer
        line = sum(map(len, prompts.parts(tokenizer, _LINE))) + prompts.names(tokenizer).longest + 5
        return len(prompts.begin(tokenizer, _INTRO)) + 2 * line + _question_size(tokenizer) - 1

    def key(self, context: TaskContext, number: int) -> tuple:
        """Return the key of a document."""
        if self.template == "completion":
            return super().key(context, number)
        return prompts.key(self, context, number)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make lines and the question, in the chosen template."""
        if self.template == "completion":
            return super().document(context, sample)
        return _official(context, sample)


def _question_size(tokenizer: Tokenizer) -> int:
    """Return the most ids of the question and its answer."""
    longest = prompts.names(tokenizer).longest + keys.pairs(tokenizer, *_WORDS).longest
    return sum(map(len, prompts.parts(tokenizer, _QUESTION))) + longest + 5


def _official(context: TaskContext, sample: Sample) -> Document:
    """Make LongEval's prompt with as many lines as fit."""
    tokenizer, values = context.tokenizer, range(10_000, 100_000)
    names, around = prompts.names(tokenizer), prompts.parts(tokenizer, _LINE)
    drawn, entries = keys.draw_entries(context, sample, names, around, values, task="lines")
    tokens = prompts.begin(tokenizer, _INTRO)
    room = context.length + 1 - len(tokens) - _question_size(tokenizer)
    starts = keys.append_entries(tokens, entries, room, task="lines")

    far = len(tokens) + _question_size(tokenizer) - 5 - 1 - starts
    wished = prompts.distance(sample.random, int(far.min()), int(far.max()))
    chosen = int(np.abs(far - wished).argmin())
    # No space comes before the key in the cue.
    key, cue_names = drawn[chosen], keys.pairs(tokenizer, *_WORDS)
    question = prompts.fill(prompts.parts(tokenizer, _QUESTION), names[key], cue_names[key])
    return prompts.append_answers(tokens, [(question, entries[chosen].number, starts[chosen])])
