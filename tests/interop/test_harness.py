"""Scores for lm-evaluation-harness against float64, without the harness."""

import dataclasses

import numpy as np
import pytest

from ropewalk.configs.changes import change
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.interop.scorer import Scorer
from tests.probes.test_inside import random_model

pytestmark = pytest.mark.slow

LENGTH = 48


@pytest.fixture(scope="module")
def run(tokenizer) -> LoadedRun:
    """An untrained model with a tokenizer."""
    run = random_model(dict(vocab_size=tokenizer.vocab_size), "rope(base=10000)")
    run = dataclasses.replace(run, config=change(run.config, data=dict(context_length=LENGTH)))
    vars(run)["tokenizer"] = tokenizer  # the run has no directory to read it from
    return run


def by_hand(run: LoadedRun, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """Compute a score in float64 from the run's logits of this row alone."""
    ids = [*context, *continuation]
    logits_TV = np.asarray(run.logits(np.array([ids[:-1]])))[0].astype(np.float64)
    logits_TV -= logits_TV.max(axis=-1, keepdims=True)
    log_probs_TV = logits_TV - np.log(np.exp(logits_TV).sum(axis=-1, keepdims=True))
    indices = range(len(context) - 1, len(ids) - 1)
    total = sum(log_probs_TV[index, ids[index + 1]] for index in indices)
    return total, all(log_probs_TV[index].argmax() == ids[index + 1] for index in indices)


def test_scores_are_those_of_each_row_alone(run):
    """Rows of several lengths in one call, with a variant that depends on the length."""
    model = Scorer(run, rotary="dynamic_ntk_aware", max_length=2 * LENGTH)
    random, pairs = np.random.default_rng(0), []
    for size in (2, 2 * LENGTH + 1, 3 * LENGTH):
        ids = [model.tokenizer.bos_id, *random.integers(3, 600, size - 1).tolist()]
        cut = int(random.integers(size // 2, size))
        pairs.append((ids[:cut], ids[cut:]))
    # One that greedy decoding does write.
    best = int(np.asarray(run.logits(np.array([pairs[0][0]])))[0, -1].argmax())
    pairs.append((pairs[0][0], [best]))
    scores = model.log_likelihoods(pairs)
    for (context, continuation), (total, greedy) in zip(pairs, scores, strict=True):
        room = 2 * LENGTH + 1 - len(continuation)  # a longer context loses its oldest ids
        expected, is_greedy = by_hand(model.run, context[-room:], continuation)
        assert total == pytest.approx(expected, abs=3e-4)
        assert greedy == is_greedy
    assert scores[-1][1]
