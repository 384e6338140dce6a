"""Passkey: a number hidden in five sentences said over and over (Mohtashami & Jaggi, 2023).

Landmark attention's text (arXiv 2305.16300), word for word, with two differences: the key has five
digits always, so that no key is easier, and the sentences are cut between ids, so that every
document is exactly as long as asked. The key is said twice; the distance is from its second
saying, the nearer one. Its cue repeats the start of the needle, and the needle is the only text
that does not repeat: read a pass as "can copy", nothing more.
"""

import dataclasses

import numpy as np

from data.tokenizer import Tokenizer
from evals import prompts
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passkey(Task):
    """See the module."""

    kind = "retrieval"

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        encode = prompts.encoder(tokenizer)
        intro = tokenizer.encode(
            "There is an important info hidden inside a lot of irrelevant text. Find it and "
            "memorize them. I will quiz you about the important information there.\n"
        )
        intro = [tokenizer.bos_id, *intro]
        before, between = encode("\nThe pass key is "), encode(". Remember it. ")
        after, question = encode(" is the pass key.\n"), encode("\nWhat is the pass key?")
        question += encode(" The pass key is ")
        room = length + 1 - len(intro + before + between + after + question) - 3 * 5
        prompts.check_length("passkey", length, length - room)
        again = encode(" " + prompts.NOISE)
        noise = (encode(prompts.NOISE) + again * (room // len(again) + 1))[: max(room, 0)]

        nearest = 5 + len(after + question) - 1
        documents = []
        for number in numbers:
            random = prompts.generator(self, config.evals.seed, length, number)
            key = prompts.digits(tokenizer, int(random.integers(10**4, 10**5)), task="passkey")
            distance = prompts.distance(random, nearest, nearest + room, distances)
            behind = distance - nearest
            needle = before + key + between + key + after
            tokens = intro + noise[: room - behind] + needle + noise[:behind] + question + key
            documents.append(
                Document(
                    tokens=np.array(tokens, np.int32),
                    answers=np.array([[len(tokens) - 5, 5, distance]], np.int32),
                    number=number,
                )
            )
        return documents

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / 90_000
