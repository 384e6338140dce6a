"""Generation with a cache equals forward passes over the full row."""

import numpy as np
import pytest

from ropewalk.evals.generation.engine import Engine, Prompts
from ropewalk.evals.generation.options import Options
from tests.inference.models import DYNAMIC, STATIC, TRAINED, V, config, logits, params

pytestmark = pytest.mark.slow

PROMPT = (np.arange(23) * 37 % V).tolist()
PROMPTS = [PROMPT, PROMPT[:1], PROMPT[5:] * 3]
NEVER = -1


def generate(engine, prompts, count, end=NEVER, **options) -> list[list[int]]:
    batch = Prompts(prompts, [0] * len(prompts))
    parts = engine.generate(batch, Options(max_new_tokens=count, **options), end)
    return np.concatenate(list(parts), axis=1).tolist()


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.long] * (x in ("hole", "polar"))) for x in STATIC],
)
def test_greedy_equals_argmax_of_a_forward_pass(name):
    """Rows of other lengths beside a row do not change it."""
    model = config(**STATIC[name])
    weights = params(model)
    # In two sizes of caches, in none, and in one.
    count = {"hole": 300, "latent": 24, "polar": 24}.get(name, 60)
    texts = generate(Engine(model, TRAINED, weights), PROMPTS, count)
    for prompt, new in zip(PROMPTS, texts, strict=True):
        row = prompt + new
        expected = logits(model, weights, row, len(row)).argmax(axis=-1)
        assert new == expected[len(prompt) - 1 : -1].tolist()
    assert len({*texts[0]}) > min(20, count // 4)  # the text varies


def test_dynamic_variant_equals_a_forward_pass_at_every_length():
    """Each id equals that of a forward pass over a row of that length, from 23 to 123 tokens."""
    model = config(**DYNAMIC)
    weights = params(model)
    [new] = generate(Engine(model, TRAINED, weights), [PROMPT], 100)
    row = PROMPT + new
    for length in range(len(PROMPT), len(row)):
        expected = logits(model, weights, row[:length], length)[-1].argmax()
        assert row[length] == expected, length


def test_a_dynamic_variant_has_a_cache_up_to_the_trained_length():
    model = config(**DYNAMIC)
    weights = params(model)
    engine = Engine(model, TRAINED, weights)
    assert engine.has_cache(TRAINED - 3, TRAINED) and not engine.has_cache(TRAINED - 3, TRAINED + 1)
    [new] = generate(engine, [PROMPT], TRAINED + 1 - len(PROMPT))
    assert generate(engine, [PROMPT], 90)[0][: len(new)] == new  # the same without a cache
    assert not engine.has_cache(2 * TRAINED, 2 * TRAINED + 1)


@pytest.fixture(scope="module")
def engine():
    """One engine for what holds of every model, so that its programs are compiled once."""
    model = config(num_layers=1, window=7, shift_keys=True)
    return Engine(model, TRAINED, params(model))


def until(end: int, ids: list[int]) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


def test_a_row_that_ends_does_not_change_others_and_the_last_one_stops(engine):
    free = generate(engine, PROMPTS, 60)
    end = free[0][3]
    expected = [until(end, ids) for ids in free]
    assert [until(end, ids) for ids in generate(engine, PROMPTS, 60, end=end)] == expected
    assert max(map(len, expected)) > len(expected[0])
    ended = generate(engine, [PROMPT] * 3, 60, end=end)
    assert [until(end, ids) for ids in ended] == [expected[0]] * 3 and len(ended[0]) < 60
    parts = engine.generate(Prompts([PROMPT], [0]), Options(max_new_tokens=60), NEVER)
    next(parts)
    with pytest.raises(StopIteration):
        parts.send(np.array([True]))
