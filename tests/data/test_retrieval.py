import numpy as np
import pytest

from ropewalk.data.config import DataConfig
from ropewalk.data.mixture import retrieval_task
from ropewalk.data.task import TaskContext
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

DATA = DataConfig(source="retrieval", context_length=64, batch_size=1)
LENGTH = 400  # all tasks fit with the small tokenizer of these tests


def documents(task, tokenizer, count, length=LENGTH, **fields):
    fields = {"split": "train", "seed": 0} | fields
    context = TaskContext(data=DATA, tokenizer=tokenizer, length=length, **fields)
    return list(retrieval_task(task).documents(context, range(count)))


@pytest.mark.parametrize("length", [64, 256, 4096])
def test_kv_asks_as_often_in_every_octave_at_every_length(tokenizer, length):
    """An octave has three answers, limited by 32 pairs and one answer per six tokens."""
    samples = documents("kv", tokenizer, 300, length)
    octaves = np.log2(length - 2)  # distances are 1 to length - 3
    expected = min(3, 32 / octaves, length / 6 / octaves)
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    counts = np.histogram(distances, 2.0 ** np.arange(int(octaves) + 1))[0] / len(samples)
    np.testing.assert_allclose(counts, expected, rtol=0.06)
    assert distances.max() <= length - 3


@pytest.mark.parametrize(
    ("task", "pairs", "answers"),
    [("kv", 32, {20, 21}), ("kv(answers=10)", 32, {10}), ("kv(pairs=4)", 4, {4})],
)
def test_kv_has_the_configured_pairs_and_answers(tokenizer, task, pairs, answers):
    for document in documents(task, tokenizer, 50, 128):
        assert len(np.intersect1d(document.tokens, tokenizer.keys)) == pairs
        assert len(document.answers) in answers


@pytest.mark.parametrize("length", [4, 5, 9, 257])
def test_kv_keys_occur_once_or_twice_with_one_value(tokenizer, length):
    for document in documents("kv", tokenizer, 20, length):
        tokens, answers = document.tokens, document.answers
        places = np.flatnonzero(np.isin(tokens, tokenizer.keys))
        values = tokens[places + 1]
        assert np.isin(values, tokenizer.values).all()
        assert np.isin(tokens, tokenizer.values).sum() == len(places)
        assert np.isin(tokens, tokenizer.fillers).sum() == length - 2 * len(places)
        keys, counts = np.unique(tokens[places], return_counts=True)
        assert counts.max() <= 2
        twice = [places[tokens[places] == key] + 1 for key in keys[counts == 2]]
        assert all(tokens[first] == tokens[second] for first, second in twice)
        assert answers[:, 0].tolist() == sorted(second for _, second in twice)
        assert (answers[:, 1] == 1).all()


def test_kv_values_are_uniform_and_tell_nothing_of_the_key(tokenizer):
    """Otherwise a model could guess the most frequent value of a key."""
    counts = np.zeros(2 * [tokenizer.vocab_size])
    for document in documents("kv(pairs=64,answers=42)", tokenizer, 900, 256):
        start = document.answers[:, 0]
        np.add.at(counts, (document.tokens[start - 1], document.tokens[start]), 1)
    counts = counts[np.ix_(tokenizer.keys, tokenizer.values)]
    expected = counts.sum() / 64**2  # 9.2 a cell
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 64**2) < 6 * np.sqrt(2 * 64**2)  # mean df, variance 2 df
    assert (counts > 0).mean() > 0.99


@pytest.mark.parametrize(("task", "apart"), [("order", 2), ("order(apart=5)", 5)])
def test_order_asks_for_the_value_of_the_first_of_two_keys(tokenizer, task, apart):
    asked, distances = [], []
    for length in [apart + 4] * 10 + [apart + 5] * 10 + [LENGTH] * 200:
        (document,) = documents(task, tokenizer, 1, length, seed=len(asked))
        tokens, answers = document.tokens, document.answers
        keys = np.flatnonzero(np.isin(tokens, tokenizer.keys))
        assert len(tokens) == length + 1
        assert len(answers) == (8 if length == LENGTH else 1)
        assert len(keys) == 3 * len(answers) == np.isin(tokens, tokenizer.values).sum()
        assert (answers[:, 1] == 1).all() and (np.diff(answers[:, 0]) > 0).all()
        for start, _, distance in answers.tolist():
            first, second, query = keys[tokens[keys] == tokens[start - 1]]
            assert query == start - 1 and first + 1 == query - distance
            assert second - first >= 2 if task == "order" else second - first == apart
            values = tokens[[first + 1, second + 1, start]]
            assert {*values[:2]} == {*tokenizer.values[:2]} and values[0] == values[2]
            asked.append(values[0])
            distances += [distance] * (length == LENGTH)
    assert abs(np.mean(asked == tokenizer.values[0]) - 0.5) < 4 * 0.5 / len(asked) ** 0.5
    counts = np.histogram(distances, 2.0 ** np.arange(3, 9))[0] / 200
    np.testing.assert_allclose(counts, 8 / np.log2((LENGTH - 2) / (apart + 1)), rtol=0.15)


@pytest.mark.parametrize("task", ["lagcopy", "lagcopy(answers=3)"])
def test_lagcopy_repeats_one_text_and_asks_as_often_at_every_lag(tokenizer, task):
    lags, places = [], []
    for document in documents(task, tokenizer, 400):
        lag = int(document.answers[0, 2]) + 1
        lags.append(lag)
        tokens = document.tokens
        np.testing.assert_array_equal(tokens[1 + lag :], tokens[1:-lag])
        # All ids after the first of the second copy are determined.
        starts, wanted = document.answers[:, 0], 3 if "3" in task else 16
        assert len(starts) == min(wanted, LENGTH - lag - 1)
        assert lag + 2 <= starts.min() <= starts.max() <= LENGTH
        assert (np.diff(starts) > 0).all()
        assert (document.answers[:, 1] == 1).all()
        places.append((starts.mean() - lag - 2) / (LENGTH - lag - 2 or 1))
    counts = np.histogram(lags, 2.0 ** np.arange(1, 9))[0] / len(lags)
    np.testing.assert_allclose(counts, 1 / np.log2((LENGTH - 1) / 2), atol=0.05)
    assert max(lags) > LENGTH // 2
    assert abs(np.mean(places) - 0.5) < 0.05


@pytest.mark.parametrize(("split", "nouns"), [("train", NOUNS), ("validation", HELD_OUT_NOUNS)])
def test_lines_read_as_published_and_hold_out_nouns(tokenizer, split, nouns):
    assert len({*NOUNS, *HELD_OUT_NOUNS}) == len(NOUNS) + len(HELD_OUT_NOUNS)
    assert len({*ADJECTIVES}) == len(ADJECTIVES)
    (document,) = documents("lines", tokenizer, 1, split=split)
    lines = tokenizer.decode(document.tokens).splitlines()
    queries = len(document.answers)
    for line in lines:
        key, content = line.split(": REGISTER_CONTENT is ")
        adjective, noun = key.removeprefix("line ").split("-")
        assert adjective in ADJECTIVES and noun in nouns
        assert (content[0], content[-1]) == ("<", ">")
        assert 10_000 <= int(content[1:-1]) <= 99_999
    first, queried = lines[:-queries], lines[-queries:]
    assert len({line.split(":")[0] for line in first}) == len(first)
    assert len({*queried}) == queries and {*queried} <= {*first}
    for (start, count, _), line in zip(document.answers, queried, strict=True):
        assert count == 5
        assert tokenizer.decode(document.tokens[start : start + 5]) == line[-6:-1]
