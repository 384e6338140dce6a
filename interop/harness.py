"""A run's answers to lm-evaluation-harness; the harness itself is not seen.

The rule of BOS: a text begins with one, whoever asks (a context, a document, a prompt), and what
a text says is never one. Where a text is longer than `max_length`, later windows begin in its
middle, as rows of training do; with `bos="every"` each window has a BOS in front.
"""

import dataclasses
import functools
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from data.task import Document
from evals import score
from experiment.loaded import LoadedRun
from model import rotary as rotary_lib
from model.positions import position_table
from utils.messages import quoted

Bos = Literal["first", "every"]
TRAINED = "trained"
_SHORTEST = 32  # tokens of the smallest program

_log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """Ids that are given, at least one, and ids that are to be scored after them, at least one."""

    context: Sequence[int]
    continuation: Sequence[int]


class Wish(NamedTuple):
    """Settings for the text that follows a prompt.

    Attributes:
      until: strings before which the text ends.
      max_new_tokens: at most, unless the prompt and these do not fit `max_length`: see `generate`.
      drawn: temperature, top_k, top_p and seed, of `inference.generate`; empty: the likeliest.
    """

    until: tuple[str, ...] = ()
    max_new_tokens: int = 256
    drawn: tuple[tuple[str, Any], ...] = ()


class Asked:
    """A run, perhaps under another rotary variant, ready to score ids and to go on from prompts.

    Attributes:
      run: under that variant.
      tokenizer: the run's.
      max_length: tokens that the model is given at most.
      bos: "first" or "every"; see above.
    """

    def __init__(
        self,
        run: LoadedRun,
        *,
        rotary: str = TRAINED,
        max_length: int | None = None,
        bos: Bos = "first",
    ):
        """From a loaded run.

        Args:
          run: what is asked.
          rotary: an expression, as of `evaluate.py --rotary`; what it leaves out is the trained
            variant's.
          max_length: None: the length the run was trained at.
          bos: see above.

        Raises:
          ValueError: for a variant that does not fit, a length below 2, another word for `bos`, or
            a run without a tokenizer.
        """
        if bos not in get_args(Bos):
            raise ValueError(f"bos must be one of {', '.join(get_args(Bos))}, got {quoted(bos)}")
        if max_length is not None and max_length < 2:
            raise ValueError(f"max_length must be at least 2, got {max_length}")
        config, model = run.config, run.config.model
        if rotary != TRAINED:
            inherited = rotary_lib.inherited_parameters(model.rotary, config.data.context_length)
            model = dataclasses.replace(model, rotary=rotary_lib.parse_pattern(rotary, inherited))
        self.run = dataclasses.replace(run, config=dataclasses.replace(config, model=model))
        self.tokenizer, self.bos = run.tokenizer, bos
        self.max_length = max_length or config.data.context_length
        # Float32, because bfloat16 logits tie, and a tie is a greedy answer won or lost.
        self._network = dataclasses.replace(model, compute_dtype="float32", remat="none")

        @functools.lru_cache(maxsize=1024)
        def table(length: int):
            return position_table(model, config.data.context_length, length)

        self._candidate = score.Candidate(run.params, table)

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """Ids of a text from its start."""
        return [self.tokenizer.bos_id] * bos + self.tokenizer.encode(text)

    def windows(self, text: str) -> list[Pair]:
        """The text cut so that each of its ids is scored once, after as many others as fit.

        The first window is BOS and what fits; each of the others scores up to `max_length` new ids
        (one less with a BOS of its own) after at least one that was scored before.
        """
        ids = self.encode(text)
        every = self.bos == "every"
        # Of the stretch `ids[start : end]` all but the last are given, and `scored` ... are asked.
        pairs, scored = [], 1
        while scored < len(ids):
            room = self.max_length + 1 if scored == 1 or not every else self.max_length
            end = min(len(ids), scored + room - 1)
            context = ids[max(0, end - room) : scored]
            prefix = [self.tokenizer.bos_id] if every and scored > 1 else []
            pairs.append(Pair(prefix + context, ids[scored:end]))
            scored = end
        return pairs

    def log_likelihoods(self, pairs: Sequence[Pair]) -> list[tuple[float, bool]]:
        """Log likelihood of each continuation, in nats, and whether greedy decoding writes it.

        Contexts lose their oldest ids where they do not fit. Pairs of like lengths are scored side
        by side, in programs of lengths that are powers of two.

        Raises:
          ValueError: if a continuation alone is longer than `max_length`.
        """
        documents = [self._document(pair) for pair in pairs]
        buckets = defaultdict(list)
        for number, document in enumerate(documents):
            size = max(_SHORTEST, 1 << (len(document.tokens) - 2).bit_length())
            buckets[min(size, self.max_length)].append(number)
        results: list[tuple[float, bool]] = [(0.0, False)] * len(pairs)
        # The longest first: what does not fit the memory says so at once.
        for length, numbers in sorted(buckets.items(), reverse=True):
            chosen = [documents[number] for number in numbers]
            scores = score.score(self._network, [self._candidate], chosen, length)
            for i, number in enumerate(numbers):
                total = -float(scores.nll[0, i]) * len(pairs[number].continuation)
                results[number] = total, bool(scores.exact_match[0, i])
        return results

    def _document(self, pair: Pair) -> Document:
        count = len(pair.continuation)
        if count > self.max_length:
            raise ValueError(
                f"a continuation of {count} tokens does not fit max_length={self.max_length}; "
                "give a larger --max_length"
            )
        tokens = [*pair.context, *pair.continuation]
        if len(tokens) > self.max_length + 1:
            tokens = tokens[-(self.max_length + 1) :]
            if self.bos == "every":
                tokens[0] = self.tokenizer.bos_id
        return Document.from_lists(tokens, [[len(tokens) - count, count, 0]])

    def generate(self, prompts: Sequence[str], wishes: Sequence[Wish]) -> list[str]:
        """Return the text that the run writes after each prompt.

        A prompt that is too long loses its oldest ids; where more new tokens are asked for than
        fit, the prompt keeps half of `max_length` and what is written is cut to the rest.
        """
        # Late: who asks for likelihoods needs none of it.
        from inference import generate

        groups = defaultdict(list)
        rows = []
        for number, (prompt, wish) in enumerate(zip(prompts, wishes, strict=True)):
            ids = self.encode(prompt)
            room = max(self.max_length - len(ids), self.max_length // 2)
            new = min(wish.max_new_tokens, room)
            rows.append(self._last(ids, self.max_length - new))
            groups[wish._replace(max_new_tokens=new)].append(number)
            if new < wish.max_new_tokens:
                _log.warning(
                    "max_gen_toks=%d is cut to %d: the model is given %d tokens at most",
                    *(wish.max_new_tokens, new, self.max_length),
                )
        texts = [""] * len(rows)
        for wish, numbers in groups.items():
            written = generate(
                self.run,
                [rows[number] for number in numbers],
                max_new_tokens=wish.max_new_tokens,
                stop=wish.until,
                **dict(wish.drawn),
            )
            for number, output in zip(numbers, written, strict=True):
                texts[number] = output.text
        return texts

    def _last(self, ids: list[int], count: int) -> list[int]:
        if len(ids) <= count:
            return ids
        if self.bos == "every":
            return [self.tokenizer.bos_id, *ids[len(ids) - count + 1 :]]
        return ids[-count:]

    def says(self) -> dict[str, Any]:
        """Run, variant and settings of the results, for their file."""
        return {
            "run": str(self.run.directory.path),
            "step": self.run.step,
            "rotary": rotary_lib.expression(self.run.config.model.rotary),
            "trained_length": self.run.config.data.context_length,
            "max_length": self.max_length,
            "bos": self.bos,
            "tokenizer": self.tokenizer.fingerprint,
        }
