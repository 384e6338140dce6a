"""Log likelihoods and continuations of a run, as lm-evaluation-harness asks for them.

Every text (a context, a document, a prompt) begins with BOS. `<s>` in a text is plain text. If a
text is longer than `max_length`, later windows begin in its middle, as rows of training do.
"""

import dataclasses
import functools
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ropewalk.data.task import Document
from ropewalk.evals import score
from ropewalk.experiment.config import TRAINED
from ropewalk.experiment.loaded import LoadedRun

_MIN_LENGTH = 32  # tokens of the smallest compiled program

_log = logging.getLogger(__name__)


Pair = tuple[Sequence[int], Sequence[int]]  # ids of a context and of the continuation to score


class Scorer:
    """A run that scores and continues token ids, optionally with another rotary variant.

    Attributes:
      run: the run, with that variant.
      tokenizer: its tokenizer.
      max_length: largest number of input tokens.
    """

    def __init__(self, run: LoadedRun, *, rotary: str = TRAINED, max_length: int | None = None):
        """Prepare a loaded run.

        Args:
          run: the run.
          rotary: expression of a variant, as in `evaluate.py --rotary`; omitted parameters are the
            trained variant's.
          max_length: largest number of input tokens; None: the trained context.

        Raises:
          ValueError: if the variant does not fit, an argument is not allowed, or the run has no
            tokenizer.
        """
        if max_length is not None and max_length < 2:
            raise ValueError(f"max_length must be at least 2, got {max_length}")
        self.run, self.tokenizer = run.with_rotary(rotary), run.tokenizer
        model, context = self.run.config.model, run.config.data.context_length
        self.max_length = max_length or context
        # In float32, because ties of bfloat16 logits would decide greedy answers.
        self._config = dataclasses.replace(model, compute_dtype="float32", remat="none")

        table = functools.partial(model.position_table, context)
        self._candidate = score.Candidate(run.params, functools.lru_cache(1024)(table))

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """Return the ids of a text, with BOS in front."""
        return [self.tokenizer.bos_id] * bos + self.tokenizer.encode(text)

    def log_likelihoods(self, pairs: Sequence[Pair]) -> list[tuple[float, bool]]:
        """Return each continuation's log likelihood in nats, and whether greedy decoding yields it.

        Contexts and continuations have at least one id.
        A context that does not fit loses its oldest ids. Pairs of similar lengths share a batch;
        lengths are rounded up to powers of two.

        Raises:
          ValueError: if a continuation alone is longer than `max_length`.
        """
        documents = [self._document(pair) for pair in pairs]
        buckets = defaultdict(list)
        for number, document in enumerate(documents):
            size = max(_MIN_LENGTH, 1 << (len(document.tokens) - 2).bit_length())
            buckets[min(size, self.max_length)].append(number)
        results: list[tuple[float, bool]] = [(0.0, False)] * len(pairs)
        # Longest first, so that insufficient memory shows at once.
        for length, numbers in sorted(buckets.items(), reverse=True):
            chosen = [documents[number] for number in numbers]
            scores = score.score(self._config, [self._candidate], chosen, length)
            for i, number in enumerate(numbers):
                total = -float(scores.nll[0, i]) * len(pairs[number][1])
                results[number] = total, bool(scores.exact_match[0, i])
        return results

    def _document(self, pair: Pair) -> Document:
        context, continuation = pair
        count = len(continuation)
        if count > self.max_length:
            raise ValueError(
                f"a continuation of {count} tokens does not fit max_length={self.max_length}; "
                "use a larger --max_length"
            )
        tokens = [*context, *continuation][-self.max_length - 1 :]
        return Document.from_lists(tokens, [[len(tokens) - count, count, 0]])

    def generate(self, prompts: Sequence[str], options: Sequence[dict[str, Any]]) -> list[str]:
        """Return the text that the run generates after each prompt.

        A prompt that is too long loses its oldest ids. If prompt and new tokens do not fit, the
        prompt keeps at least half of `max_length`, and the text is cut to the rest.

        Args:
          prompts: the prompts.
          options: of `inference.generate`, for each prompt: `max_new_tokens` and others, hashable.
        """
        from ropewalk.evals.generation import (
            generate,
        )  # here, because log likelihoods do not need it

        groups = defaultdict(list)
        rows = []
        for number, (prompt, option) in enumerate(zip(prompts, options, strict=True)):
            ids, wanted = self.encode(prompt), option["max_new_tokens"]
            new = min(wanted, max(self.max_length - len(ids), self.max_length // 2))
            rows.append(ids[max(0, len(ids) + new - self.max_length) :])
            groups[tuple((option | {"max_new_tokens": new}).items())].append(number)
            if new < wanted:
                _log.warning(
                    "max_gen_toks=%d is cut to %d, because max_length is %d tokens",
                    *(wanted, new, self.max_length),
                )
        texts = [""] * len(rows)
        for option, numbers in groups.items():
            outputs = generate(self.run, [rows[number] for number in numbers], **dict(option))
            for number, output in zip(numbers, outputs, strict=True):
                texts[number] = output.text
        return texts
