import numpy as np
import pytest

from data.config import DataConfig
from data.mixture import retrieval_task
from data.task import Asked
from data.tasks.kv import _place
from data.words import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

TASKS = ("kv", "lagcopy", "lines")
DATA = DataConfig(source="retrieval", context_length=64, batch_size=1)
LENGTH = 400  # all tasks fit with the small tokenizer of these tests


def make_document(task, tokenizer, length, *, seed, split, index, distances=None):
    asked = Asked(
        data=DATA, tokenizer=tokenizer, length=length, seed=seed, split=split, distances=distances
    )
    (document,) = retrieval_task(task).documents(asked, range(index, index + 1))
    return document


def documents(task, tokenizer, count, length=LENGTH, split="train", seed=0):
    return [
        make_document(task, tokenizer, length, seed=seed, split=split, index=i)
        for i in range(count)
    ]


@pytest.mark.parametrize("task", TASKS)
def test_every_answer_was_said_at_its_distance(tokenizer, task):
    """The answer's ids stand, equal, `distance` before the position whose logits give them."""
    for document in documents(task, tokenizer, 30):
        tokens = document.tokens
        assert len(document.answers) > 0
        for start, count, distance in document.answers:
            said = start - 1 - distance
            assert 0 < said < start
            assert said + count <= len(tokens)
            np.testing.assert_array_equal(
                tokens[said : said + count], tokens[start : start + count]
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
    line = 60 if task == "lines" else 1  # no line is asked for nearer than its own length
    assert distances.max() > 0.85 * LENGTH
    # A tenth or more in each of: the near quarter on a log scale up to T/8, T/8..T/2, T/2..T.
    edges = np.array([line, LENGTH / 8, LENGTH / 2, LENGTH])
    if task == "lines":
        edges = np.array([0, LENGTH / 3, LENGTH / 2, LENGTH])
    shares = np.histogram(distances, edges)[0] / len(distances)
    assert (shares > 0.1).all(), shares


def test_kv_distances_reach_every_half_octave(tokenizer):
    distances = np.concatenate([d.answers[:, 2] for d in documents("kv", tokenizer, 200, 256)])
    edges = np.append(8 * 2 ** (np.arange(10) / 2), 254)
    counts = np.histogram(distances, edges)[0] / len(distances)
    assert (counts > 0.02).all(), counts
    assert distances.min() == 1
    assert distances.max() >= 251


@pytest.mark.parametrize("length", [4, 5, 9, 64, 256, 257, 1000])
def test_kv_asks_every_key_once_and_only_its_value_follows(tokenizer, length):
    keys, values = set(tokenizer.keys.tolist()), set(tokenizer.values.tolist())
    for document in documents("kv", tokenizer, 20, length):
        tokens = document.tokens.tolist()
        places: dict[int, list[int]] = {}
        for i, token in enumerate(tokens):
            if token in keys:
                places.setdefault(token, []).append(i)
        assert len(places) == min(64, length // 2 // 2)
        assert all(len(found) == 2 for found in places.values())
        for first, second in places.values():
            assert tokens[first + 1] == tokens[second + 1]
            assert tokens[first + 1] in values
        asked = sorted(second + 1 for _, second in places.values())
        assert document.answers[:, 0].tolist() == asked
        assert (document.answers[:, 1] == 1).all()
        assert sum(token in values for token in tokens) == 2 * len(places)


def test_kv_values_are_uniform_and_tell_nothing_of_the_key(tokenizer):
    """Guessing the value that most often goes with a key wins no more than chance."""
    seen = np.zeros((64, 64))
    keys = {token: i for i, token in enumerate(tokenizer.keys.tolist())}
    values = {token: i for i, token in enumerate(tokenizer.values.tolist())}
    for document in documents("kv", tokenizer, 600, 256):
        for start in document.answers[:, 0]:
            seen[keys[document.tokens[start - 1]], values[document.tokens[start]]] += 1
    expected = seen.sum() / 64**2  # 9.4 a cell
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert abs(chi_square - 64**2) < 6 * np.sqrt(2 * 64**2)  # mean df, variance 2 df
    assert (seen > 0).mean() > 0.99


def test_kv_values_are_drawn_independently(tokenizer):
    """64 draws of 64 hit 40.6 different ones: nothing can be won by leaving out those used."""
    distinct = [
        len(set(document.tokens[document.answers[:, 0]].tolist()))
        for document in documents("kv", tokenizer, 100, 256)
    ]
    assert abs(np.mean(distinct) - 64 * (1 - (63 / 64) ** 64)) < 1


def test_lagcopy_repeats_one_text(tokenizer):
    lags = []
    for document in documents("lagcopy", tokenizer, 50):
        lag = int(document.answers[0, 2]) + 1
        lags.append(lag)
        tokens = document.tokens
        np.testing.assert_array_equal(tokens[1 + lag :], tokens[1:-lag])
        # All ids from the second of the second copy on, one answer each.
        np.testing.assert_array_equal(document.answers[:, 0], np.arange(lag + 2, LENGTH + 1))
        assert (document.answers[:, 1] == 1).all()
    assert min(lags) < 10
    assert max(lags) > LENGTH // 2


def test_lagcopy_needs_one_id_of_context(tokenizer):
    """No piece occurs twice in a text no longer than the alphabet, so the answer is determined."""
    for document in documents("lagcopy", tokenizer, 50, length=60):
        lag = int(document.answers[0, 2]) + 1
        assert len(set(document.tokens[1 : 1 + lag].tolist())) == lag


def test_lines_read_as_published(tokenizer):
    document = make_document("lines", tokenizer, LENGTH, seed=0, split="train", index=0)
    lines = tokenizer.decode(document.tokens).splitlines()
    queries = len(document.answers)
    for line in lines:
        words, content = line.split(": REGISTER_CONTENT is ")
        adjective, noun = words.removeprefix("line ").split("-")
        assert adjective in ADJECTIVES
        assert noun in NOUNS
        assert content[0] == "<"
        assert content[-1] == ">"
        assert 10_000 <= int(content[1:-1]) <= 99_999
    said, asked = lines[:-queries], lines[-queries:]
    assert len(set(said)) == len(said)
    assert len({line.split(":")[0] for line in said}) == len(said)
    assert len(set(asked)) == queries
    assert set(asked) <= set(said)
    for (start, count, _), line in zip(document.answers, asked, strict=True):
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
    for words in (ADJECTIVES, NOUNS, HELD_OUT_NOUNS):
        assert len(set(words)) == len(words)
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
    for split in ("train", "validation"):  # what fits in training fits in evaluation
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
    "wished", [[5, 1], [5, 5, 5], [1, 1, 1, 1], [7, 7, 1, 1], [4, 3, 2, 1], [2, 2, 2, 2]]
)
def test_placing_uses_no_slot_twice_and_keeps_distances_that_fit(wished):
    slots = _place(np.array(wished), 8, np.random.default_rng(0))
    assert len(np.unique(slots)) == slots.size == 2 * len(wished)
    assert slots.min() >= 0
    assert slots.max() < 8
    assert (slots[1] > slots[0]).all()
    assert (slots[1] - slots[0])[0] == wished[0]  # the first always fits


def test_placing_falls_back_to_the_nearest_distance():
    # 7 takes slots 0 and 7; another 7 cannot be: from the first free slot, 1, the farthest is 6.
    slots = _place(np.array([7, 7]), 8, np.random.default_rng(0))
    assert slots.T.tolist() == [[0, 7], [1, 6]]
    # 2 fits as (0, 2) or (1, 3); what is left is 2 apart, as near to 1 as there is.
    slots = _place(np.array([2, 1]), 4, np.random.default_rng(0))
    assert sorted((slots[1] - slots[0]).tolist()) == [2, 2]


@pytest.mark.parametrize(
    ("task", "band", "nearest", "farthest"),
    [
        ("kv", (20, 80), 21, 79),  # keys stand two tokens apart: distances are odd
        ("kv", (4, 4), 5, 5),
        ("kv", (1, 1), 1, 1),
        ("lagcopy", (20, 80), 20, 80),
        ("lagcopy", (7, 7), 7, 7),
    ],
)
def test_questions_stand_at_the_distances_asked_for(tokenizer, task, band, nearest, farthest):
    made = [
        make_document(task, tokenizer, 600, seed=0, split="train", index=i, distances=band)
        for i in range(40)
    ]
    distances = np.concatenate([document.answers[:, 2] for document in made])
    assert nearest <= distances.min() <= distances.max() <= farthest
    if nearest < farthest:  # both ends of the band are asked
        shares = np.histogram(distances, np.geomspace(20, 80, 4))[0] / len(distances)
        assert (shares > 0.1).all(), shares


def test_lines_are_asked_at_the_distances_asked_for_as_nearly_as_lines_stand(tokenizer):
    distances = np.concatenate(
        [
            make_document(
                "lines", tokenizer, 1200, seed=0, split="train", index=i, distances=(300, 600)
            ).answers[:, 2]
            for i in range(60)
        ]
    )
    assert ((distances >= 300) & (distances <= 600)).mean() > 0.9
    # Asked for at a distance, not from where the asking line begins: centred, as 300 to 600 is.
    assert np.median(distances) == pytest.approx(440, abs=25)


def test_distances_that_do_not_fit_become_others(tokenizer):
    """Every slot of 256 tokens is used: no more than half of the keys can stand half as far."""
    document = make_document(
        "kv", tokenizer, 256, seed=0, split="train", index=0, distances=(128, 253)
    )
    assert len(document.answers) == 64
    assert 0.2 < (document.answers[:, 2] >= 128).mean() < 0.9


@pytest.mark.parametrize("task", TASKS)
def test_documents_with_other_distances_are_other_documents(tokenizer, task):
    def make(distances):
        return make_document(
            task, tokenizer, LENGTH, seed=0, split="train", index=5, distances=distances
        ).tokens.tolist()

    assert make((50, 200)) == make((np.int64(50), np.int64(200)))
    assert make(None) != make((50, 200)) != make((50, 201))


def test_documents_of_all_distances_are_those_of_the_first_version():
    """Results that are stored stay comparable: ids as they came out of version 1."""

    class Reserved:
        bos_id, keys, values, fillers = 99, np.arange(64), 64 + np.arange(64), np.arange(200, 300)

    document = make_document("kv", Reserved, 16, seed=0, split="validation", index=0)
    assert document.tokens.tolist() == [
        *(99, 62, 104, 57, 78, 11, 127, 11, 127, 57, 78, 62, 104, 58, 66, 58, 66)
    ]
    assert document.answers.tolist() == [[8, 1, 1], [10, 1, 5], [12, 1, 9], [16, 1, 1]]


@pytest.mark.parametrize("task", TASKS)
def test_distances_beyond_the_length_are_refused(tokenizer, task):
    with pytest.raises(ValueError, match=rf"at distances {LENGTH} to 999; .* there are \d+ to 39"):
        make_document(
            task, tokenizer, LENGTH, seed=0, split="train", index=0, distances=(LENGTH, 999)
        )
