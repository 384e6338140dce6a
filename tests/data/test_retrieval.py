import numpy as np
import pytest

from data.config import DataConfig
from data.mixture import retrieval_task
from data.task import TaskContext
from data.word_lists import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

TASKS = ("kv", "lagcopy", "lines")
DATA = DataConfig(source="retrieval", context_length=64, batch_size=1)
LENGTH = 400  # all tasks fit with the small tokenizer of these tests


def make_document(task, tokenizer, length, *, seed=0, split="train", index=0, distances=None):
    context = TaskContext(
        data=DATA, tokenizer=tokenizer, length=length, seed=seed, split=split, distances=distances
    )
    (document,) = retrieval_task(task).documents(context, range(index, index + 1))
    return document


def documents(task, tokenizer, count, length=LENGTH, split="train", seed=0):
    return [
        make_document(task, tokenizer, length, seed=seed, split=split, index=i)
        for i in range(count)
    ]


@pytest.mark.parametrize("task", TASKS)
def test_every_answer_occurred_at_its_distance(tokenizer, task):
    """Equal ids lie `distance` before the position whose logits predict the answer."""
    for document in documents(task, tokenizer, 30):
        tokens = document.tokens
        assert len(document.answers) > 0
        for start, count, distance in document.answers:
            first = start - 1 - distance
            assert 0 < first < start
            assert first + count <= len(tokens)
            np.testing.assert_array_equal(
                tokens[first : first + count], tokens[start : start + count]
            )
            assert start + count <= len(tokens)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("length", [400, 401, 777])
def test_documents_fill_the_length_and_begin_with_bos_alone(tokenizer, task, length):
    for document in documents(task, tokenizer, 20, length):
        assert document.tokens.dtype == document.answers.dtype == np.int32
        assert length * 0.8 < len(document.tokens) <= length + 1
        assert np.flatnonzero(document.tokens == tokenizer.bos_id).tolist() == [0]


@pytest.mark.parametrize("task", TASKS)
def test_documents_are_functions_of_their_arguments(tokenizer, task):
    def make(**changes):
        arguments = {"length": LENGTH, "seed": 0, "split": "train", "index": 3} | changes
        return make_document(task, tokenizer, **arguments).tokens.tolist()

    again = make()
    make_document("kv", tokenizer, 64, seed=9, split="train", index=1)
    assert make() == again
    for change in ({"seed": 1}, {"split": "validation"}, {"index": 4}, {"length": LENGTH + 8}):
        assert make(**change) != again


@pytest.mark.parametrize("task", TASKS)
def test_distances_cover_near_and_far(tokenizer, task):
    distances = np.concatenate([d.answers[:, 2] for d in documents(task, tokenizer, 400)])
    line = 60 if task == "lines" else 1  # a line is longer than the shortest distances
    assert distances.max() > 0.85 * LENGTH
    # A tenth or more in each of: the near quarter on a log scale up to T/8, T/8..T/2, T/2..T.
    edges = np.array([line, LENGTH / 8, LENGTH / 2, LENGTH])
    if task == "lines":
        edges = np.array([0, LENGTH / 3, LENGTH / 2, LENGTH])
    shares = np.histogram(distances, edges)[0] / len(distances)
    assert (shares > 0.1).all(), shares


@pytest.mark.parametrize("length", [64, 100, 128, 256, 512, 4096])
def test_kv_asks_as_often_in_every_octave_at_every_length(tokenizer, length):
    """An octave has three answers, limited by 32 pairs and one answer per six tokens."""
    samples = documents("kv", tokenizer, 300, length)
    octaves = np.log2(length - 2)  # distances are 1 to length - 3
    expected = min(3, 32 / octaves, length / 6 / octaves)
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    counts = np.histogram(distances, 2.0 ** np.arange(int(octaves) + 1))[0] / len(samples)
    np.testing.assert_allclose(counts, expected, rtol=0.06)
    assert distances.max() <= length - 3


def test_kv_distances_are_even_and_odd_and_each_has_its_share(tokenizer):
    """The share of distance d is the logarithm of (d + 1) / d."""
    samples = documents("kv", tokenizer, 1500, 128)
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    counts = np.bincount(distances)[1:17] / len(samples)
    expected = 3 * np.log2(1 + 1 / np.arange(1, 17))
    np.testing.assert_allclose(counts, expected, rtol=0.15)
    far = distances[distances >= 16]
    assert abs((far % 2).mean() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("task", "pairs", "answers"),
    [("kv", 32, (20, 21)), ("kv(answers=10)", 32, (10, 10)), ("kv(pairs=4)", 4, (4, 4))],
)
def test_kv_has_the_configured_pairs_and_answers(tokenizer, task, pairs, answers):
    for document in documents(task, tokenizer, 100, 128):
        num_keys = np.isin(document.tokens, tokenizer.keys).sum()
        assert len(np.intersect1d(document.tokens, tokenizer.keys)) == pairs
        assert answers[0] <= len(document.answers) <= answers[1]
        assert num_keys == pairs + len(document.answers)


def test_kv_answers_are_spread_over_octaves_however_few(tokenizer):
    samples = documents("kv(answers=7)", tokenizer, 200, 130)
    distances = np.stack([np.sort(document.answers[:, 2]) for document in samples])
    np.testing.assert_array_equal(np.log2(distances).astype(int), [range(7)] * 200)


@pytest.mark.parametrize("length", [64, 128])
def test_kv_distances_end_at_the_longest(tokenizer, length):
    """Octaves keep their answers: three each, five and a third octaves up to 40 tokens."""
    samples = documents("kv(longest=40)", tokenizer, 300, length)
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    assert distances.max() == 40
    expected = min(3 * np.log2(41), length / 6)
    assert len(distances) / len(samples) == pytest.approx(expected, rel=0.02)


def test_kv_draws_keys_from_the_configured_ids(tokenizer):
    reserved = tokenizer.keys.tolist()
    for count in (32, 64, 80):
        ids = reserved[:count] + tokenizer.fillers[: max(0, count - 64)].tolist()
        keys, others = set(), set()
        for document in documents(f"kv(keys={count})", tokenizer, 200, 128):
            starts = document.answers[:, 0] - 1  # the key before the value
            keys |= set(document.tokens[starts].tolist())
            others |= set(document.tokens.tolist()) - set(tokenizer.values.tolist())
        assert keys == set(ids)
        assert not (others - keys) & set(reserved)
    too_many = 64 + len(tokenizer.fillers)
    with pytest.raises(ValueError, match=f"needs {too_many - 64} more key ids"):
        documents(f"kv(keys={too_many})", tokenizer, 1)
    with pytest.raises(ValueError, match="pairs=32 must be at most keys=16"):
        retrieval_task("kv(keys=16)")


@pytest.mark.parametrize("length", [4, 5, 9, 64, 256, 257, 1000])
def test_kv_keys_occur_once_or_twice_with_one_value(tokenizer, length):
    keys, values = set(tokenizer.keys.tolist()), set(tokenizer.values.tolist())
    for document in documents("kv", tokenizer, 20, length):
        tokens = document.tokens.tolist()
        indices_of: dict[int, list[int]] = {}
        for i, token in enumerate(tokens):
            if token in keys:
                indices_of.setdefault(token, []).append(i)
        assert all(
            tokens[index + 1] in values for indices in indices_of.values() for index in indices
        )
        twice = [indices for indices in indices_of.values() if len(indices) > 1]
        assert all(
            len(indices) == 2 and tokens[indices[0] + 1] == tokens[indices[1] + 1]
            for indices in twice
        )
        assert document.answers[:, 0].tolist() == sorted(second + 1 for _, second in twice)
        assert (document.answers[:, 1] == 1).all()
        num_keys = sum(map(len, indices_of.values()))
        assert sum(token in values for token in tokens) == num_keys
        assert sum(token in tokenizer.fillers for token in tokens) == length - 2 * num_keys


@pytest.mark.parametrize("length", [64, 128, 1024])
def test_kv_counts_the_wrong_keys(tokenizer, length):
    """Forecasts use this count; for a short document it is right within a fifth."""
    keys = set(tokenizer.keys.tolist())
    counts = [
        len(keys.intersection(document.tokens.tolist()))
        for document in documents("kv", tokenizer, 30, length)
    ]
    num_others = retrieval_task("kv").num_others(DATA, length)
    assert num_others is not None
    assert num_others + 1 == (
        pytest.approx(np.mean(counts), rel=0.2) if length == 64 else min(counts)
    )
    assert retrieval_task("lines").num_others(DATA, length) is None


def test_kv_values_are_uniform_and_tell_nothing_of_the_key(tokenizer):
    """Otherwise a model could guess the most frequent value of a key."""
    counts = np.zeros((64, 64))
    keys = {token: i for i, token in enumerate(tokenizer.keys.tolist())}
    values = {token: i for i, token in enumerate(tokenizer.values.tolist())}
    for document in documents("kv(pairs=64,answers=42)", tokenizer, 900, 256):
        for start in document.answers[:, 0]:
            counts[keys[document.tokens[start - 1]], values[document.tokens[start]]] += 1
    expected = counts.sum() / 64**2  # 9.2 a cell
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 64**2) < 6 * np.sqrt(2 * 64**2)  # mean df, variance 2 df
    assert (counts > 0).mean() > 0.99


def test_kv_values_are_drawn_independently(tokenizer):
    """Otherwise a model could exclude used values; 32 draws of 64 have 25.3 different values."""
    distinct = [
        len(set(document.tokens[document.answers[:, 0]].tolist()))
        for document in documents("kv(answers=32)", tokenizer, 200, 256)
    ]
    assert abs(np.mean(distinct) - 64 * (1 - (63 / 64) ** 32)) < 0.5


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


def test_lagcopy_needs_one_id_of_context(tokenizer):
    """A text no longer than the alphabet has no piece twice, so one id determines the next."""
    for document in documents("lagcopy", tokenizer, 50, length=60):
        lag = int(document.answers[0, 2]) + 1
        assert len(set(document.tokens[1 : 1 + lag].tolist())) == lag


def test_lines_read_as_published(tokenizer):
    document = make_document("lines", tokenizer, LENGTH, seed=0, split="train", index=0)
    lines = tokenizer.decode(document.tokens).splitlines()
    queries = len(document.answers)
    for line in lines:
        key, content = line.split(": REGISTER_CONTENT is ")
        adjective, noun = key.removeprefix("line ").split("-")
        assert adjective in ADJECTIVES
        assert noun in NOUNS
        assert content[0] == "<"
        assert content[-1] == ">"
        assert 10_000 <= int(content[1:-1]) <= 99_999
    first, queried = lines[:-queries], lines[-queries:]
    assert len(set(first)) == len(first)
    assert len({line.split(":")[0] for line in first}) == len(first)
    assert len(set(queried)) == queries
    assert set(queried) <= set(first)
    for (start, count, _), line in zip(document.answers, queried, strict=True):
        assert count == 5
        assert tokenizer.decode(document.tokens[start : start + 5]) == line[-6:-1]
        assert tokenizer.decode(document.tokens[start - 1 : start]) != ""


def test_lines_keys_are_unique_in_long_documents(tokenizer):
    for document in documents("lines", tokenizer, 5, length=8000):
        lines = tokenizer.decode(document.tokens).splitlines()[: -len(document.answers)]
        assert len(lines) > 100  # as many keys drawn with repetition would share one
        assert len({line.split(":")[0] for line in lines}) == len(lines)


def test_lines_hold_out_nouns(tokenizer):
    assert not set(NOUNS) & set(HELD_OUT_NOUNS)
    for vocabulary in (ADJECTIVES, NOUNS, HELD_OUT_NOUNS):
        assert len(set(vocabulary)) == len(vocabulary)
    for split, nouns in (("train", NOUNS), ("validation", HELD_OUT_NOUNS)):
        for document in documents("lines", tokenizer, 20, split=split):
            for line in tokenizer.decode(document.tokens).splitlines():
                assert line.split(":")[0].split("-")[1] in nouns


def test_lines_that_do_not_fit_name_a_length_that_does(tokenizer):
    with pytest.raises(ValueError, match="the shortest that works with this tokenizer is") as error:
        make_document("lines", tokenizer, 20, seed=0, split="train", index=0)
    floor = int(str(error.value).rsplit(" ", 1)[1])
    for index in range(50):
        document = make_document("lines", tokenizer, floor, seed=0, split="train", index=index)
        assert len(tokenizer.decode(document.tokens).splitlines()) >= 3
    for split in ("train", "validation"):  # both splits fit the same lengths
        make_document("lines", tokenizer, floor, seed=0, split=split, index=0)
        with pytest.raises(ValueError, match=f"length={floor - 1}"):
            make_document("lines", tokenizer, floor - 1, seed=0, split=split, index=0)


@pytest.mark.parametrize("task", ["kv", "lagcopy"])
def test_shortest_length_that_works_works(tokenizer, task):
    with pytest.raises(ValueError, match=r"does not fit length=3; the shortest .* is 4$"):
        make_document(task, tokenizer, 3, seed=0, split="train", index=0)
    for index in range(50):
        document = make_document(task, tokenizer, 4, seed=0, split="train", index=index)
        assert len(document.answers) >= 1


@pytest.mark.parametrize("task", TASKS)
def test_loss_mask_marks_the_positions_that_answer(tokenizer, task):
    document = make_document(task, tokenizer, LENGTH, seed=0, split="train", index=1)
    mask = document.loss_mask()
    assert mask.shape == (len(document.tokens) - 1,)
    expected = np.zeros(len(mask))
    for start, count, _ in document.answers:
        for i in range(start, start + count):
            expected[i - 1] = 1  # logits at i - 1 give token i
    np.testing.assert_array_equal(mask, expected)


def test_chance(tokenizer):
    def chance(task):
        return retrieval_task(task).chance(tokenizer)

    assert chance("kv") == 1 / 64
    assert chance("lagcopy") == 1 / len(tokenizer.fillers)
    assert chance("lines") == 1 / 90_000  # 10000 ... 99999
    with pytest.raises(
        ValueError, match=r"unknown retrieval task 'needle'; .*valid: kv, lagcopy, lines"
    ):
        chance("needle")


@pytest.mark.parametrize(
    ("task", "band", "nearest", "farthest"),
    [
        ("kv", (20, 80), 20, 80),
        ("kv", (4, 4), 4, 4),
        ("kv", (1, 1), 1, 1),
        ("lagcopy", (20, 80), 20, 80),
        ("lagcopy", (7, 7), 7, 7),
    ],
)
def test_distances_lie_in_the_requested_range(tokenizer, task, band, nearest, farthest):
    samples = [
        make_document(task, tokenizer, 600, seed=0, split="train", index=i, distances=band)
        for i in range(40)
    ]
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    assert nearest <= distances.min() <= distances.max() <= farthest
    if nearest < farthest:  # both ends of the range occur
        shares = np.histogram(distances, np.geomspace(20, 80, 4))[0] / len(distances)
        assert (shares > 0.1).all(), shares


def test_lines_are_near_the_requested_distances(tokenizer):
    distances = np.concatenate(
        [
            make_document(
                "lines", tokenizer, 1200, seed=0, split="train", index=i, distances=(300, 600)
            ).answers[:, 2]
            for i in range(60)
        ]
    )
    assert ((distances >= 300) & (distances <= 600)).mean() > 0.9
    # Distances count from the answer, so their centre is that of 300 to 600.
    assert np.median(distances) == pytest.approx(440, abs=25)


def test_distances_that_do_not_fit_become_others(tokenizer):
    """32 repeated pairs fill half of 256 tokens, so at most 30 can be 192 tokens apart."""
    task = "kv(answers=32)"
    document = make_document(task, tokenizer, 256, distances=(192, 253))
    assert len(document.answers) == 32
    assert 0.4 < (document.answers[:, 2] >= 192).mean() < 1


@pytest.mark.parametrize("task", TASKS)
def test_documents_with_other_distances_are_other_documents(tokenizer, task):
    def make(distances):
        return make_document(
            task, tokenizer, LENGTH, seed=0, split="train", index=5, distances=distances
        ).tokens.tolist()

    assert make((50, 200)) == make((np.int64(50), np.int64(200)))
    assert make(None) != make((50, 200)) != make((50, 201))


@pytest.mark.parametrize("task", TASKS)
def test_distances_beyond_the_length_are_refused(tokenizer, task):
    with pytest.raises(ValueError, match=rf"at distances {LENGTH} to 999; .* there are \d+ to 39"):
        make_document(
            task, tokenizer, LENGTH, seed=0, split="train", index=0, distances=(LENGTH, 999)
        )


def test_lines_have_the_configured_answers(tokenizer):
    for answers in (1, 4, 7):
        for document in documents(f"lines(answers={answers})", tokenizer, 5, 1200):
            assert len(document.answers) == answers
            assert len(np.unique(document.answers[:, 0] - document.answers[:, 2])) == answers


def test_lines_ask_near_and_far_alike(tokenizer):
    """Half of the distances are below the middle of their logarithmic range."""
    samples = documents("lines", tokenizer, 400, 1200)
    distances = np.concatenate([document.answers[:, 2] for document in samples])
    middle = np.sqrt(distances.min() * 1200)
    assert abs((distances < middle).mean() - 0.5) < 0.07
