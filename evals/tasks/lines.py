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
import functools
from typing import Literal, NamedTuple

import numpy as np

from data import keys
from data.task import Document, Sample, TaskContext
from data.tasks import lines
from data.tokenizer import Tokenizer
from data.word_lists import ADJECTIVES, HELD_OUT_NOUNS
from evals import prompts

_INTRO = (
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. For each "
    "line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, I will "
    "ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. Now the "
    "record start:\n\n"
)


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
        parts = _parts(context.tokenizer)
        line = sum(map(len, parts.line)) + parts.names.longest + 5
        return len(parts.intro) + 2 * line + parts.question_size - 1

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


class _Parts(NamedTuple):
    """Ids of every part of the official prompt, encoded once."""

    intro: list[int]
    line: list[list[int]]  # around the key and the number
    question: list[list[int]]  # around the key, twice
    names: keys.Pairs
    cue_names: keys.Pairs  # in the cue, where no space comes before them

    @property
    def question_size(self) -> int:
        """Most ids of the question and its answer."""
        longest = self.names.longest + self.cue_names.longest
        return sum(map(len, self.question)) + longest + 5


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer) -> _Parts:
    return _Parts(
        [tokenizer.bos_id, *tokenizer.encode(_INTRO)],
        prompts.parts(tokenizer, "line{}: REGISTER_CONTENT is <{}>\n"),
        prompts.parts(
            tokenizer,
            "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line{}? I need "
            "the number. Line <{}>: <REGISTER_CONTENT> is <",
        ),
        keys.pairs(tokenizer, ADJECTIVES, HELD_OUT_NOUNS, (" ", "-")),
        keys.pairs(tokenizer, ADJECTIVES, HELD_OUT_NOUNS),
    )


def _official(context: TaskContext, sample: Sample) -> Document:
    """Make LongEval's prompt with as many lines as fit."""
    parts = _parts(context.tokenizer)
    values = range(10_000, 100_000)
    drawn, entries = keys.draw_entries(
        context, sample, parts.names, parts.line, values, task="lines"
    )
    tokens = list(parts.intro)
    room = context.length + 1 - len(tokens) - parts.question_size
    starts = keys.append_entries(tokens, entries, room, task="lines")

    far = len(tokens) + parts.question_size - 5 - 1 - starts
    wished = prompts.distance(sample.random, int(far.min()), int(far.max()), context.distances)
    chosen = int(np.abs(far - wished).argmin())
    before, middle, after = parts.question
    name, cue_name = parts.names[drawn[chosen]], parts.cue_names[drawn[chosen]]
    question, number = before + name + middle + cue_name + after, entries[chosen][1][:5]
    return prompts.ask(tokens, [(question, number, starts[chosen])])
