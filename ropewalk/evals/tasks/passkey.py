"""Passkey: a number hidden in five repeated sentences (Mohtashami & Jaggi, 2023).

Landmark attention's text (arXiv 2305.16300), word for word, with two differences: the key always
has five digits, so that all keys are equally hard, and the sentences are cut between ids, so that
every document has exactly the length of the context. The key occurs twice; the distance is from the
second, nearer occurrence. The cue repeats the start of the needle, and the needle is the only text
that does not repeat, so passing shows only that a model can copy.

With `chat=True` the prompt is a message in the chat template of the model, and the cue begins its
answer.
"""

import dataclasses

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts

_INTRO = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passkey(prompts.PromptTask):
    """Retrieval of a passkey; see the module.

    Attributes:
      chat: whether the prompt is a message to a chat model.
    """

    kind = "retrieval"
    num_choices = 90_000

    chat: bool = False

    def least_length(self, context: TaskContext) -> int:
        """Return the length without noise."""
        return sum(map(len, self._parts(context.tokenizer))) + 3 * 5 - 1

    def _parts(self, tokenizer: Tokenizer) -> tuple[list[int], ...]:
        """Return the ids of the introduction, of the text around both keys, and of the question."""
        before, between, after = prompts.parts(
            tokenizer, "\nThe pass key is {}. Remember it. {} is the pass key.\n"
        )
        question, cue, chat_cue = (
            prompts.parts(tokenizer, text)[0]
            for text in ("\nWhat is the pass key?", " The pass key is ", "The pass key is ")
        )
        intro = prompts.begin(tokenizer, _INTRO)
        if self.chat:
            turns = prompts.turns(tokenizer)
            intro = turns.before + prompts.parts(tokenizer, _INTRO)[0]
            cue = turns.to_answer + chat_cue
        return intro, before, between, after, question + cue

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the noise with the key twice, and the question at the end."""
        tokenizer = context.tokenizer
        intro, before, between, after, question = parts = self._parts(tokenizer)
        value = int(sample.random.integers(10**4, 10**5))
        (key,) = keys.numbers(tokenizer, [value], task="passkey")
        room = context.length + 1 - sum(map(len, parts)) - 3 * len(key)
        (again,), (noise,) = (
            prompts.parts(tokenizer, text) for text in (" " + prompts.NOISE, prompts.NOISE)
        )
        noise = noise + again * (room // len(again) + 1)

        nearest = len(key + after + question) - 1
        behind = prompts.distance(sample.random, nearest, nearest + room) - nearest
        needle = keys.Entry(before + key + between, key, after)
        hay = noise[: room - behind] + noise[:behind]
        tokens, (start,) = prompts.hide(intro, hay, [room - behind], [needle])
        return prompts.append_answers(tokens, [(question, key, start)])
