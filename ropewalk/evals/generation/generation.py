"""`generate`: texts from prompts."""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ropewalk.evals.generation.engine import Engine, Prompts
from ropewalk.evals.generation.options import Options
from ropewalk.evals.generation.text import Generated, TextStream
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.utils.messages import quoted

Prompt = str | Sequence[int]

# Maximum tokens and rows of a batch, which limit the memory of the caches.
_BATCH_TOKENS = 2**15
_BATCH_ROWS = 64


def generate(
    run: LoadedRun,
    prompts: Sequence[Prompt],
    *,
    stream: Callable[[int, str], None] | None = None,
    **options: Any,
) -> list[Generated]:
    """Generate a text for each prompt.

    All computation is in float32, as in `evaluate.py` and `LoadedRun.logits`. A text does not
    depend on the other prompts.

    Args:
      run: a loaded checkpoint.
      prompts: texts, which get BOS in front, or ids, which are used unchanged.
      stream: called with the index of a prompt and new text as soon as that is final; at the end of
        a text with an empty string.
      **options: fields of `options.Options`: max_new_tokens, temperature, top_k, top_p,
        seed, stop.

    Raises:
      ValueError: if an option is invalid, a prompt has no ids or ids that the model does not have,
        or the run has no tokenizer.
    """
    parsed = Options(**options)
    if isinstance(prompts, str):
        raise ValueError(f"prompts must be a list of texts or ids, got {quoted(prompts)}")
    tokenizer = run.tokenizer
    rows = [_prompt_ids(run, index, prompt) for index, prompt in enumerate(prompts)]
    keys, counts = [], Counter[tuple[int, ...]]()
    for row in rows:  # equal prompts get different random numbers
        keys.append(counts[tuple(row)])
        counts[tuple(row)] += 1

    texts = [
        TextStream(row, tokenizer, parsed, stream and functools.partial(stream, index))
        for index, row in enumerate(rows)
    ]
    engine = _engine(run)
    for batch in _batches([len(row) + parsed.max_new_tokens for row in rows], engine.is_dynamic):
        batch_prompts = Prompts([rows[i] for i in batch], [keys[i] for i in batch])
        chunks = engine.generate(batch_prompts, parsed, tokenizer.eos_id)
        done_B = None
        while True:
            try:
                new_BC = chunks.send(done_B)
            except StopIteration:
                break
            for i, new in zip(batch, new_BC, strict=True):
                texts[i].add(new.tolist())
            done_B = np.array([texts[i].is_done for i in batch])
    return [text.generated for text in texts]


def _prompt_ids(run: LoadedRun, index: int, prompt: Prompt) -> list[int]:
    """Return the ids of a prompt."""
    if isinstance(prompt, str):
        return run.as_tokens(prompt)[0].tolist()
    if not len(prompt):
        raise ValueError(f"prompt {index} has no ids: give at least BOS, [{run.tokenizer.bos_id}]")
    return run.as_tokens(np.array([prompt]))[0].tolist()


# Weights stay on the device as long as the run exists.
_engines: weakref.WeakKeyDictionary[LoadedRun, Engine] = weakref.WeakKeyDictionary()


def _engine(run: LoadedRun) -> Engine:
    if run not in _engines:
        _engines[run] = Engine(run.config.model, run.config.data.context_length, run.params)
    return _engines[run]


def _batches(lengths: Sequence[int], one_by_one: bool) -> list[list[int]]:
    """Return the indices of rows of each batch, longest rows first."""
    remaining = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    while remaining:
        # The longest row determines how many rows fit.
        fitting = max(1, _BATCH_TOKENS // lengths[remaining[0]])
        count = 1 if one_by_one else min(_BATCH_ROWS, fitting)
        batches.append(remaining[:count])
        remaining = remaining[count:]
    return batches
