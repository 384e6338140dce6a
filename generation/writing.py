"""`generate`: prompts in, texts out."""

import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from data.tokenizer import Tokenizer
from experiment.loaded import LoadedRun
from generation.engine import Engine, Prompts
from generation.options import Options
from generation.text import TextStream
from settings.messages import quoted

Prompt = str | Sequence[int]

# Tokens of the rows that go on side by side: what they leave in caches must fit.
_TOKENS_TOGETHER = 2**15
_ROWS_TOGETHER = 64


@dataclasses.dataclass
class Generated:
    """What was written after a prompt.

    Attributes:
      text: without the prompt, and without a stop string.
      tokens: ids, without EOS; with those that make up the stop string.
      prompt_tokens: how many ids the prompt has, BOS among them.
      finish: why it ended: at `max_new_tokens`, at EOS or at a stop string.
    """

    text: str
    tokens: list[int]
    prompt_tokens: int
    finish: Literal["length", "eos", "stop"] = "length"


def generate(
    run: LoadedRun,
    prompts: Sequence[Prompt],
    *,
    stream: Callable[[int, str], None] | None = None,
    **options: Any,
) -> list[Generated]:
    """Goes on from each prompt.

    Everything is computed in float32, as `evaluate.py` and `LoadedRun.logits` do, unless `dtype`
    says otherwise; a text does not hang on what is written beside it.

    Args:
      run: a loaded checkpoint.
      prompts: texts, which get BOS in front, or ids, which are taken as they are.
      stream: called with a prompt's number and new text, as soon as that is certain; at its end
        with an empty one.
      **options: fields of `generation.options.Options`: max_new_tokens, temperature, top_k, top_p,
        seed, stop, dtype.

    Raises:
      ValueError: for an option out of its bounds, a prompt without ids or with ids that the model
        does not have, or a run without a tokenizer.
    """
    chosen = Options(**_as_tuple(options))
    if isinstance(prompts, str):
        raise ValueError(f"prompts must be a list of texts or ids, got {quoted(prompts)}")
    tokenizer = run.tokenizer
    rows = [_ids(run, number, prompt) for number, prompt in enumerate(prompts)]
    keys, seen = [], Counter[tuple[int, ...]]()
    for row in rows:
        keys.append(seen[tuple(row)])
        seen[tuple(row)] += 1

    texts = [
        _Text(row, tokenizer, chosen, emit=None if stream is None else _bound(stream, number))
        for number, row in enumerate(rows)
    ]
    engine = _engine(run, chosen.dtype)
    for batch in _batches([len(row) + chosen.max_new_tokens for row in rows], engine.alone):
        together = Prompts([rows[i] for i in batch], [keys[i] for i in batch])
        written = engine.continued(together, chosen, tokenizer.eos_id)
        unwanted = None
        while True:
            try:
                new_BC = written.send(unwanted)
            except StopIteration:
                break
            for i, new in zip(batch, new_BC, strict=True):
                texts[i].add(new.tolist())
            unwanted = np.array([texts[i].is_done for i in batch])
    return [text.generated for text in texts]


def _as_tuple(options: dict[str, Any]) -> dict[str, Any]:
    """A list of stop strings is as good as a tuple of them."""
    stop = options.get("stop")
    return options | {"stop": tuple(stop)} if isinstance(stop, list) else options


def _bound(stream: Callable[[int, str], None], number: int) -> Callable[[str], None]:
    return lambda text: stream(number, text)


def _ids(run: LoadedRun, number: int, prompt: Prompt) -> list[int]:
    """The ids of a prompt."""
    if isinstance(prompt, str):
        return run.as_tokens(prompt)[0].tolist()
    if not len(prompt):
        raise ValueError(f"prompt {number} has no ids: give at least BOS, [{run.tokenizer.bos_id}]")
    return run.as_tokens(np.array([prompt]))[0].tolist()


# Weights on the device, as long as the run is in use.
_engines: weakref.WeakKeyDictionary[LoadedRun, dict[str, Engine]] = weakref.WeakKeyDictionary()


def _engine(run: LoadedRun, dtype: str) -> Engine:
    engines = _engines.setdefault(run, {})
    if dtype not in engines:
        engines.clear()  # one copy of the weights is enough
        context_length = run.config.data.context_length
        engines[dtype] = Engine(run.config.model, context_length, run.params, dtype)
    return engines[dtype]


def _batches(lengths: Sequence[int], alone: bool) -> list[list[int]]:
    """Which rows go on side by side: those of like lengths."""
    waiting = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    while waiting:
        # The longest says how many fit.
        fitting = max(1, _TOKENS_TOGETHER // lengths[waiting[0]])
        count = 1 if alone else min(_ROWS_TOGETHER, fitting)
        batches.append(waiting[:count])
        waiting = waiting[count:]
    return batches


class _Text:
    """One row's text while it grows.

    Attributes:
      generated: what has come of it so far.
      is_done: whether no more is wanted.
    """

    def __init__(
        self, prompt: list[int], tokenizer: Tokenizer, options: Options, emit: Callable | None
    ):
        at_start = prompt == [tokenizer.bos_id]
        self._text = TextStream(tokenizer, options.stop, at_start=at_start)
        self._end, self._emit = tokenizer.eos_id, emit or (lambda text: None)
        self._most = options.max_new_tokens
        self.generated, self.is_done = Generated("", [], len(prompt)), False

    def add(self, ids: list[int]) -> None:
        """Takes new ids; what stands behind the row's end is not looked at."""
        written = self.generated.tokens
        for i in ids:
            if self.is_done:
                return
            if i == self._end:
                self._end_with("eos")
                return
            written.append(i)
            self._give(self._text.push([i]))
            if self._text.stopped:
                self._end_with("stop")
            elif len(written) == self._most:
                self._end_with("length")

    def _give(self, text: str) -> None:
        self.generated.text += text
        if text:
            self._emit(text)

    def _end_with(self, finish: Literal["length", "eos", "stop"]) -> None:
        # What was held back, lest a stop string should come of it, is text after all.
        self._give(self._text.push([], last=True))
        # Even then a stop string may be in it: a broken character's sign.
        self.generated.finish = "stop" if self._text.stopped else finish
        self.is_done = True
        self._emit("")
