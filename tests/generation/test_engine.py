"""What is written with a cache is what a forward pass over the whole row would have written."""

import numpy as np
import pytest

from generation import programs
from generation.engine import Engine, Prompts, bucket
from generation.options import Options
from model import decoding
from tests.generation.networks import DYNAMICS, LATENT, STATIC, TRAINED, V, config, logits, params

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unoptimized")]

PROMPT = (np.arange(23) * 37 % V).tolist()
NEVER = -1


def written(engine, prompts, most, end=NEVER, keys=None, **options) -> list[list[int]]:
    together = Prompts(prompts, keys or [0] * len(prompts))
    parts = engine.continued(together, Options(max_new_tokens=most, **options), end)
    return np.concatenate(list(parts), axis=1).tolist()


@pytest.mark.parametrize("name", STATIC)
def test_greedy_is_the_argmax_of_a_forward_pass(name):
    model = config(**STATIC[name])
    weights = params(model)
    [new] = written(Engine(model, TRAINED, weights), [PROMPT], 200)
    row = PROMPT + new
    expected = logits(model, weights, row, len(row)).argmax(axis=-1)
    assert new == expected[len(PROMPT) - 1 : -1].tolist()
    assert len(set(new)) > 20  # not a text that says the same whatever came before


@pytest.mark.parametrize("name", DYNAMICS)
def test_a_dynamic_variant_grows_as_fresh_passes_would(name):
    """Each new id from a pass of its own, over a row of that very length; from 23 to 123 tokens."""
    model = config(**DYNAMICS[name])
    weights = params(model)
    [new] = written(Engine(model, TRAINED, weights), [PROMPT], 100)
    row = PROMPT + new
    for length in range(len(PROMPT), len(row)):
        expected = logits(model, weights, row[:length], length)[-1].argmax()
        assert row[length] == expected, length
    # One that kept to the trained frequencies would have written something else.
    plain = config(**DYNAMICS[name] | {"rotary": "rope(base=500)"})
    assert written(Engine(plain, TRAINED, weights), [PROMPT], 100) != [new]


def test_a_prompt_past_the_trained_length_has_its_own_frequencies():
    model = config(**DYNAMICS["two layers"])
    weights, prompt = params(model), PROMPT * 4
    [new] = written(Engine(model, TRAINED, weights), [prompt], 3)
    row = prompt + new
    for length in range(len(prompt), len(row)):
        assert row[length] == logits(model, weights, row[:length], length)[-1].argmax()


@pytest.mark.parametrize(
    "name",
    [
        "latent, window, shifted keys",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("gqa", "window, shifted keys")),
    ],
)
def test_a_batch_of_unequal_prompts_is_its_rows_alone(name):
    model = config(**STATIC[name])
    engine = Engine(model, TRAINED, params(model))
    prompts = [PROMPT, PROMPT[:1], PROMPT[5:] * 3]
    together = written(engine, prompts, 60)
    assert together == [written(engine, [prompt], 60)[0] for prompt in prompts]
    drawn = written(engine, prompts, 60, temperature=1.0, top_p=0.9, seed=4)
    alone = [written(engine, [each], 60, temperature=1.0, top_p=0.9, seed=4) for each in prompts]
    assert drawn == [row for [row] in alone]
    assert drawn != together


def test_a_row_that_ends_leaves_the_others_as_they_are():
    model = config()
    engine = Engine(model, TRAINED, params(model))
    prompts = [PROMPT, PROMPT[:9]]
    free = written(engine, prompts, 60)
    end = next(i for i in free[0] if i not in free[1])
    place = free[0].index(end)
    ended = written(engine, prompts, 60, end=end)
    assert ended[0][: place + 1] == free[0][: place + 1]
    assert ended[1] == free[1]


def test_nothing_is_computed_once_all_rows_are_done():
    model = config()
    engine = Engine(model, TRAINED, params(model))
    [free] = written(engine, [PROMPT], 60)
    end = free[10]
    [ended] = written(engine, [PROMPT], 60, end=end)
    assert ended[: free.index(end) + 1] == free[: free.index(end) + 1]
    assert len(ended) < 60
    parts = engine.continued(Prompts([PROMPT], [0]), Options(max_new_tokens=60), NEVER)
    next(parts)
    with pytest.raises(StopIteration):
        parts.send(np.array([True]))


def test_caches_grow_and_windows_do_not():
    model = config(window=(300, 40, None), num_layers=3)
    weights = params(model)
    [new] = written(Engine(model, TRAINED, weights), [PROMPT], 560)
    row = PROMPT + new
    expected = logits(model, weights, row, len(row)).argmax(axis=-1)
    assert new == expected[len(PROMPT) - 1 : -1].tolist()
    assert decoding.layout(model, 256).sizes == (256, 40, 256)
    assert decoding.layout(model, 1024).sizes == (300, 40, 1024)


def test_a_row_begins_with_nothing_before_it():
    """The slot before a row's first token is the ring's last, which holds what pads the prompt."""
    model = config(**LATENT | dict(shift_keys=True, num_layers=1))
    weights, prompt = params(model), (PROMPT * 9)[:200]
    # The first token's key is mixed with next to nothing but the one before it.
    weights["blocks"]["attention"]["shift"] = np.full((1, 4), 6, np.float32)
    [new] = written(Engine(model, TRAINED, weights), [prompt], 50)
    row = prompt + new
    expected = logits(model, weights, row, len(row)).argmax(axis=-1)
    assert new == expected[len(prompt) - 1 : -1].tolist()


def test_one_program_a_bucket_of_lengths():
    model = config(mlp_dim=40)  # no other test's
    engine = Engine(model, TRAINED, params(model))
    before = programs.start._cache_size(), programs.go_on._cache_size()
    for length in (1, 2, 30, 64, 65, 100, 128):
        written(engine, [(PROMPT * 6)[:length]], 90)
    # Prompts of up to 64 and 128 tokens; all rows fit the smallest cache.
    assert programs.start._cache_size() - before[0] == 2
    assert programs.go_on._cache_size() - before[1] == 1
    written(engine, [(PROMPT * 6)[:100]], 170)
    assert programs.go_on._cache_size() - before[1] == 2
    # Numbers are arguments: another base, another count.
    other = Engine(config(mlp_dim=40, rotary="rope(base=1e4)"), TRAINED, params(model))
    written(other, [PROMPT], 7)
    assert programs.go_on._cache_size() - before[1] == 2


def test_buckets():
    assert [bucket(size) for size in (1, 64, 65, 128, 129)] == [64, 64, 128, 128, 256]
    assert [bucket(size, 1) for size in (1, 2, 3, 5)] == [1, 2, 4, 8]
