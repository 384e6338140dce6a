"""Synthetic captures and models."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from ropewalk.configs import find_config
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.transformer import Activations
from ropewalk.probes.capturing import Capture
from ropewalk.probes.questions import Questions
from tests.evals.oracles import copying_model
from tests.models import small_model


def make_capture(
    q_BTNR: np.ndarray, k_BTNR: np.ndarray, rotary: str, window: int | None = None
) -> Capture:
    """Return a capture of one layer with these queries and keys; pairs are complex numbers."""
    B, T, N, R = q_BTNR.shape
    heads = dict(num_heads=N, num_kv_heads=N, head_dim=2 * R)
    q_LBTNH, k_LBTNH = (
        np.concatenate([x.real, x.imag], axis=-1)[None].astype(np.float32) for x in (q_BTNR, k_BTNR)
    )
    return Capture(
        config=small_model(**heads, rotary=rotary, window=window),
        context_length=T,
        tokens_BT=np.zeros((B, T), np.int32),
        positions_BT=np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        segment_ids_BT=np.ones((B, T), np.int32),
        activations=Activations(q_LBTNH, k_LBTNH, k_LBTNH, None),
        hidden_BTD=None,  # pyright: ignore[reportArgumentType]
        params={},
    )


def make_subject(
    captured: Capture, questions: Questions | None = None, right_Q: np.ndarray | None = None
) -> Any:
    """Return those attributes of a `Subject` that probes of captured questions read."""
    return SimpleNamespace(capture=captured, questions=questions, is_right=right_Q)


def plant_keys(
    shape: tuple[int, int, int, int],
    z_R: np.ndarray,
    *,
    noise: float = 0.0,
    rotary: str = "rope(base=10)",
    window: int | None = None,
) -> tuple[Capture, Questions]:
    """Return one question per row: queries are 1, the matching key has conj(k) = z.

    `shape` is B rows, T tokens, N heads, and R pairs; each row has eight other keys.
    """
    B, T = shape[:2]
    random = np.random.default_rng(0)
    positions = np.stack([random.permutation(np.arange(1, T - 1))[:9] for _ in range(B)])
    is_value_BT = np.zeros((B, T), bool)
    np.put_along_axis(is_value_BT, positions, True, axis=1)
    key_Q = positions[:, 0]
    query_Q = random.integers(key_Q + 1, T)
    k_BSNR = noise * (random.normal(size=shape) + 1j * random.normal(size=shape))
    k_BSNR[np.arange(B), key_Q] += np.conj(z_R)
    captured = make_capture(np.ones(shape), k_BSNR, rotary, window)
    return captured, Questions(np.arange(B), query_Q, key_Q, is_value_BT)


def copying_run(
    tokenizer: Tokenizer, *, num_random_heads: int = 0, rotary: str = "nope"
) -> LoadedRun:
    """Return a model of one layer whose last head answers key-value recall at every distance.

    The heads before it have small random weights. `rotary` is the variant of all heads.
    """
    model, params = copying_model(tokenizer)
    random, attention = np.random.default_rng(0), params["blocks"]["attention"]
    for name, axis, size in (("query", 2, 0.1), ("key", 2, 0.1), ("value", 2, 1), ("out", 1, 1e-3)):
        shape = list(attention[name].shape)
        shape[axis] = num_random_heads
        weights = size * random.normal(size=shape).astype(np.float32)
        attention[name] = np.concatenate([weights, attention[name]], axis=axis)
    attention["shift"] = np.repeat(attention["shift"], 1 + num_random_heads, axis=1)
    sizes = dict(num_heads=1 + num_random_heads, num_kv_heads=1 + num_random_heads)
    tiny = find_config("tiny")
    config = dataclasses.replace(
        tiny,
        model=dataclasses.replace(model, **sizes, rotary=rotary_lib.parse_pattern(rotary)),
        data=dataclasses.replace(tiny.data, context_length=64, vocab_size=tokenizer.vocab_size),
        evals=dataclasses.replace(tiny.evals, documents=24),
    )
    run = LoadedRun(RunDirectory("nowhere"), 0, config, params)
    vars(run)["tokenizer"] = tokenizer  # the run has no directory to read it from
    return run
