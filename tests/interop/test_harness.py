"""Scores for lm-evaluation-harness against float64, without the harness."""

import dataclasses

import numpy as np
import pytest

from ropewalk.experiment.loaded import LoadedRun
from ropewalk.interop.scorer import Pair, Scorer
from tests.probes.test_inside import random_model

pytestmark = pytest.mark.slow

LENGTH = 48


@pytest.fixture(scope="module")
def run(tokenizer) -> LoadedRun:
    """An untrained model with a tokenizer."""
    run = random_model(dict(vocab_size=tokenizer.vocab_size), "rope(base=10000)")
    data = dataclasses.replace(run.config.data, context_length=LENGTH)
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))
    vars(run)["tokenizer"] = tokenizer  # the run has no directory to read it from
    return run


def by_hand(run: LoadedRun, pair: Pair) -> tuple[float, bool]:
    """Compute a score in float64 from the run's logits of this row alone."""
    ids = [*pair.context, *pair.continuation]
    logits_TV = np.asarray(run.logits(np.array([ids[:-1]])))[0].astype(np.float64)
    logits_TV -= logits_TV.max(axis=-1, keepdims=True)
    log_probs_TV = logits_TV - np.log(np.exp(logits_TV).sum(axis=-1, keepdims=True))
    indices = range(len(pair.context) - 1, len(ids) - 1)
    total = sum(log_probs_TV[index, ids[index + 1]] for index in indices)
    return total, all(log_probs_TV[index].argmax() == ids[index + 1] for index in indices)


@pytest.mark.long
def test_scores_do_not_depend_on_the_batch(run):
    """Rows of several lengths in one call: padding and other rows change nothing."""
    model, random = Scorer(run), np.random.default_rng(0)
    pairs = []
    for size in (2, 3, 31, 33, 34, 48, 49):
        ids = [model.tokenizer.bos_id, *random.integers(3, 600, size - 1).tolist()]
        cut = int(random.integers(1, size))
        pairs.append(Pair(ids[:cut], ids[cut:]))
    # One that greedy decoding does write.
    best = int(np.asarray(run.logits(np.array([pairs[0].context])))[0, -1].argmax())
    pairs.append(Pair(pairs[0].context, [best]))
    scores = model.log_likelihoods(pairs)
    for pair, (total, greedy) in zip(pairs, scores, strict=True):
        expected, is_greedy = by_hand(run, pair)
        assert total == pytest.approx(expected, abs=2e-4)
        assert greedy == is_greedy
    assert scores[-1][1]


def test_long_contexts_lose_their_oldest_ids(run):
    ids = np.random.default_rng(1).integers(3, 600, 80).tolist()
    [result] = Scorer(run).log_likelihoods([Pair(ids[:70], ids[70:])])
    expected = by_hand(run, Pair(ids[80 - LENGTH - 1 : 70], ids[70:]))
    assert result[0] == pytest.approx(expected[0], abs=2e-4)


@pytest.mark.long
def test_dynamic_variants_depend_on_each_row(run):
    """Beyond the trained context, a batch gives the same scores as each row alone."""
    model = Scorer(run, rotary="dynamic_ntk_aware", max_length=3 * LENGTH)
    random = np.random.default_rng(2)
    pairs = [
        Pair([1, *random.integers(3, 600, size).tolist()], random.integers(3, 600, 4).tolist())
        for size in (20, 70, 100, 130)
    ]
    for pair, (total, _) in zip(pairs, model.log_likelihoods(pairs), strict=True):
        assert total == pytest.approx(by_hand(model.run, pair)[0], abs=3e-4)
        [alone] = model.log_likelihoods([pair])
        assert total == pytest.approx(alone[0], abs=3e-4)
