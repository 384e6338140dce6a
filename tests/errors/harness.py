"""Errors of evaluating a run with lm-evaluation-harness."""

import sys
from types import SimpleNamespace
from typing import Any

from interop.harness import Asked, Pair
from interop.lm_eval import register
from tests.errors.table import Row


def asked(**fields) -> Any:
    """Nothing of a run is read before these are looked at."""
    return Asked(SimpleNamespace(), **fields)  # pyright: ignore[reportArgumentType]


def of_length(max_length: int) -> Asked:
    model = object.__new__(Asked)
    model.max_length = max_length
    return model


def _not_installed(patch):
    register.cache_clear()
    patch.setitem(sys.modules, "lm_eval", None)
    patch.setitem(sys.modules, "lm_eval.api.model", None)


ROWS = [
    Row(
        "-m interop lm_eval run --tasks local_text --include_path nowhere",
        "--include_path nowhere: no such folder",
    ),
    Row(
        "-m interop lm_eval run --tasks local_text",
        "lm_eval needs lm-evaluation-harness: run `make test-hf` once, or pip install lm-eval",
        given=_not_installed,
    ),
    Row(lambda: asked(bos="last"), "bos must be one of first, every, got 'last'"),
    Row(lambda: asked(max_length=1), "max_length must be at least 2, got 1"),
    Row(
        lambda: of_length(4).log_likelihoods([Pair([1], [2] * 5)]),
        "a continuation of 5 tokens does not fit max_length=4; give a larger --max_length",
    ),
]
