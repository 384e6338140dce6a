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
import functools

from ropewalk.data import chat, keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts


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
        return _encode(tokenizer, self.chat, tokenizer.chat_template)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the noise with the key twice, and the question at the end."""
        tokenizer = context.tokenizer
        intro, before, between, after, question = parts = self._parts(tokenizer)
        value = int(sample.random.integers(10**4, 10**5))
        (key,) = keys.numbers(tokenizer, [value], task="passkey")
        room = context.length + 1 - sum(map(len, parts)) - 3 * len(key)
        again = prompts.encoder(tokenizer)(" " + prompts.NOISE)
        noise = prompts.encoder(tokenizer)(prompts.NOISE) + again * (room // len(again) + 1)

        nearest = len(key + after + question) - 1
        distance = prompts.distance(sample.random, nearest, nearest + room, context.distances)
        behind = distance - nearest
        needle = before + key + between + key + after
        tokens = intro + noise[: room - behind] + needle + noise[:behind] + question + key
        return Document.from_lists(tokens, [[len(tokens) - len(key), len(key), distance]])


@functools.lru_cache(maxsize=8)
def _encode(tokenizer: Tokenizer, is_chat: bool, template: str | None) -> tuple[list[int], ...]:
    """Return the ids of the introduction, of the text around both keys, and of the question."""
    # `template` is part of the key: tokenizers of one file may have different templates.
    encode = prompts.encoder(tokenizer)
    text = (
        "There is an important info hidden inside a lot of irrelevant text. Find it and "
        "memorize them. I will quiz you about the important information there.\n"
    )
    before, between = encode("\nThe pass key is "), encode(". Remember it. ")
    after, question = encode(" is the pass key.\n"), encode("\nWhat is the pass key?")
    if is_chat:
        turns = chat.turns(tokenizer)
        cue = turns.to_answer + encode("The pass key is ")
        return turns.before + encode(text), before, between, after, question + cue
    intro = [tokenizer.bos_id, *tokenizer.encode(text)]
    return intro, before, between, after, question + encode(" The pass key is ")
