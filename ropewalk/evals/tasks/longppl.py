"""LongPPL: the loss of the tokens that need a long context (Fang et al., arXiv 2410.23771).

A second model, the judge, reads a text twice: all of it, and in windows. A token is a key token if
the long context lowers the judge's loss by more than `gain`, and the loss is then below `loss`:

    key(i):  log P(x_i | long) - log P(x_i | short) > gain,  -log P(x_i | long) < loss

Key tokens are the answers, and their mean loss is the logarithm of LongPPL. The judge may be the
evaluated run itself, but then it is right about the key tokens that it chose: compare models by one
judge. If its tokenizer differs, a token is a key token if all its bytes belong to key tokens.

Windows begin every `stride` tokens and have `short + stride` tokens, of which the last `stride` are
judged. Every text and window begins with BOS, as texts in training. The authors' code
(github.com/PKU-ML/LongPPL) puts it before the judge's text only, and takes all tokens of a
character for key tokens if one is; with BOS and ASCII, both choose the same tokens. It reads texts
of up to 32,768 tokens with windows of 4,096 + 1,024 tokens.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.evals import text
from ropewalk.utils.checks import Count, Positive

if TYPE_CHECKING:
    from ropewalk.experiment.loaded import LoadedRun


@functools.lru_cache(maxsize=1)
def _read_judge(path: str) -> "LoadedRun":
    from ropewalk.experiment.loaded import load  # brings jax, which --help does without

    return load(path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longppl(text.CropTask):
    """Loss of key tokens; see the module. A row's `distance` is the number of tokens before it.

    Attributes:
      judge: run directory of the model that chooses the key tokens.
      short: tokens of the short context; None: an eighth of the length.
      stride: tokens that a window judges; None: a quarter of the short context.
      gain: least gain of a key token from the long context, nats (the paper's alpha).
      loss: largest loss of a key token after the long context, nats (the paper's -beta).
    """

    kind = "likelihood"

    judge: str
    short: Count | None = None
    stride: Count | None = None
    gain: Positive = 2.0
    loss: Positive = 2.0

    def least_length(self, context: TaskContext) -> int:
        """Return the short context and one token."""
        return (self.short or 1) + 1

    def check(self, context: TaskContext) -> None:
        """Raise ValueError as `data.task.Task.check`, or if the judge is no run."""
        super().check(context)
        _read_judge(self.judge)

    def documents(self, context: TaskContext, numbers: range) -> list[Document]:
        """Return the documents of these numbers.

        Raises:
          ValueError: as `data.task.Task.documents`, or if there is no key token.
        """
        documents = super().documents(context, numbers)
        if documents and not any(len(document.answers) for document in documents):
            raise ValueError(
                f"{self.expression}: no token at length {context.length} gains {self.gain:g} nats "
                "from the long context; ask for longer --lengths, more --documents or a lower gain"
            )
        return documents

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make BOS and a crop, whose key tokens are the answers."""
        tokens, sizes_N2 = sample.source
        judge = _read_judge(self.judge)
        ids, is_same = tokens[1:], judge.tokenizer == context.tokenizer
        is_key = self._is_key(judge, ids) if is_same else self._is_key_in(judge, context, ids)
        places = np.flatnonzero(is_key) + 1
        answers = np.stack([places, np.ones_like(places), places - 1], axis=1)
        return text.sized(Document.from_lists(tokens, answers), sizes_N2)

    def _is_key(self, judge: "LoadedRun", ids: np.ndarray) -> np.ndarray:
        """Return whether ids of the judge's tokenizer are key tokens, bool `[n]`."""
        from ropewalk.evals import score

        short = self.short or max(1, len(ids) // 8)
        stride = self.stride or max(1, short // 4)
        windows = [
            _judged(judge, ids[start : start + short + stride], short)
            for start in range(0, len(ids) - short, stride)
        ]
        if not windows:
            return np.zeros(len(ids), bool)
        model, trained = judge.config.model, judge.config.data.context_length
        candidates = [score.Candidate.from_model(judge.params, model, trained)]
        long_nll, short_nll = (
            # Texts of other tokenizers differ in length; rounded, they share programs.
            score.score(model.forward_architecture(), candidates, documents, length).nll[0]
            for documents, length in (
                ([_judged(judge, ids, short)], -(-len(ids) // short) * short),
                (windows, short + stride),
            )
        )
        is_key = (short_nll - long_nll > self.gain) & (long_nll < self.loss)
        return np.concatenate([np.zeros(short, bool), is_key])

    def _is_key_in(self, judge: "LoadedRun", context: TaskContext, ids: np.ndarray) -> np.ndarray:
        """Return whether all bytes of ids belong to key tokens of another tokenizer, bool `[n]`."""
        content = b"".join(map(context.tokenizer.piece_bytes.__getitem__, ids.tolist()))
        # A crop may begin and end inside a character.
        first = len(content) - len(content.lstrip(bytes(range(0x80, 0xC0))))
        inside = content[first:].decode(errors="ignore")
        judge_ids = np.array(judge.tokenizer.encode(inside, inside=True))
        sizes = judge.tokenizer.piece_lengths[judge_ids]
        if sizes.sum() != len(inside.encode()):
            raise ValueError(
                f"{self.expression}: the judge's tokenizer changes the text (its normalizer)"
            )
        is_key = np.zeros(len(content), int)
        is_key[first : first + sizes.sum()] = np.repeat(self._is_key(judge, judge_ids), sizes)
        counts, lengths = np.append(0, is_key.cumsum()), context.tokenizer.piece_lengths[ids]
        ends = lengths.cumsum()
        return (counts[ends] - counts[ends - lengths] == lengths) & (lengths > 0)


def _judged(judge: "LoadedRun", ids: np.ndarray, short: int) -> Document:
    """Return BOS and ids, of which those after the first `short` are one answer each."""
    places = np.arange(short + 1, len(ids) + 1)
    answers = np.stack([places, np.ones_like(places), places - 1], axis=1)
    return Document.from_lists([judge.tokenizer.bos_id, *ids], answers)
