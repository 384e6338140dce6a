import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ropewalk import evals
from ropewalk.reporting.task_view import view_of
from tests.evals.helpers import make_documents, rows

NOISE = (
    r"The grass is green\. The sky is blue\. The sun is yellow\. Here we go\. "
    r"There and back again\.\n"
)
NEEDLE = r"One of the special magic numbers for {} is: {}\."
START = (
    r"A special magic number is hidden within the following text\. Make sure to memorize it\. "
    r"I will quiz you about the number afterwards\.\n"
)
END = (
    r"What is the special magic number for {0} mentioned in the provided text\? "
    r"The special magic number for {0} mentioned in the provided text is (?P=value)"
)
KEY, VALUE = r"(?P<key>[a-z]+-[a-z]+)", r"(?P<value>[1-9]\d{6})"


def documents(task, config, tokenizer, length, numbers, **options):
    return make_documents(evals.parse(task), config, tokenizer, length, numbers, **options)


def test_one_needle_in_noise_is_rulers_prompt(prose_config, prompt_tokenizer):
    pattern = f"{START}({NOISE})*{NEEDLE.format(KEY, VALUE)}\n({NOISE})*{END.format('(?P=key)')}"
    result = documents("needle", prose_config, prompt_tokenizer, 600, range(30))
    values = Counter()
    for document in result:
        match = re.fullmatch(pattern, prompt_tokenizer.decode(document.tokens))
        assert match
        values[match["value"]] += 1
        ((start, count, _),) = document.answers
        assert prompt_tokenizer.decode(document.tokens[start : start + count]) == match["value"]
        assert start + count == len(document.tokens)
    # The same needle at eight depths, another one for each number.
    assert list(values.values()) == [8] * 30


@pytest.mark.parametrize("hay", ["noise", "needle"])
def test_several_answers_are_rulers_multivalue_and_multiquery(hay, prose_config, prompt_tokenizer):
    task = f"needle(keys=5,queries=3,values=2,haystack={hay})"
    ends = set()
    for document in documents(task, prose_config, prompt_tokenizer, 1500, range(9)):
        text = prompt_tokenizer.decode(document.tokens)
        match = re.fullmatch(
            r"Some special magic numbers are hidden within the following text\. Make sure to "
            r"memorize it\. I will quiz you about the numbers afterwards\.\n(?P<text>(?s:.)*\n)"
            r"What are all the special magic numbers for (?P<keys>.*) mentioned in the provided "
            r"text\? The special magic numbers for (?P=keys) mentioned in the provided text are "
            "(?P<end>.*)",
            text,
        )
        assert match
        needles = re.findall(NEEDLE.format("(.*)", r"(\d{7})") + "\n", match["text"])
        counts = Counter(Counter(key for key, _ in needles).values())
        assert counts[2] == 5 and (hay == "needle") == (counts[1] > 10) and set(counts) <= {1, 2}
        asked = re.fullmatch("(.*), (.*), and (.*)", match["keys"])
        assert asked and len(set(asked.groups())) == 3
        right = [value for key in asked.groups() for name, value in needles if name == key]
        assert match["end"] == ", ".join(right) and len(right) == len(document.answers) == 6
        for value, (start, count, distance) in zip(right, document.answers.tolist(), strict=True):
            source = start - 1 - distance
            for first in (start, source):
                assert prompt_tokenizer.decode(document.tokens[first : first + count]) == value
        ends.add(match["end"])
    assert len(ends) == 9


def test_depths_differ_in_nothing_else(prose_config, prompt_tokenizer):
    for task in ("needle(keys=3)", "needle(haystack=text,keys=3)", "needle(haystack=text)"):
        result = documents(task, prose_config, prompt_tokenizer, 800, range(6))
        for number in range(6):
            mine = [document for document in result if document.number == number]
            assert [document.first_query for document in mine] == list(range(8))
            sentence = re.search(
                NEEDLE.format(r"\S+", prompt_tokenizer.decode(mine[0].tokens[-7:])),
                prompt_tokenizer.decode(mine[0].tokens),
            )[0]
            texts = [prompt_tokenizer.decode(document.tokens) for document in mine]
            assert {text.count(sentence) for text in texts} == {1}
            assert len({re.sub(rf"\s{sentence}|{sentence}\s", "", text) for text in texts}) == 1
            distances = [document.answers[0, 2] for document in mine]
            # Evenly spaced to the nearest line or sentence.
            np.testing.assert_allclose(np.diff(distances), -np.ptp(distances) / 7, atol=60)
            assert distances[0] > 650 and distances[-1] < 80


def test_a_text_haystack_is_held_out_text_with_needles_between_sentences(
    prose_config, prompt_tokenizer
):
    held_out = (Path(prose_config.data.path) / "validation.jsonl").read_text()
    result = documents("needle(haystack=text)", prose_config, prompt_tokenizer, 500, range(8))
    haystacks = set()
    for document in result:
        text = prompt_tokenizer.decode(document.tokens)
        match = re.fullmatch(
            f"{START}(?P<before>.*?) {NEEDLE.format(KEY, VALUE)}(?P<after>.*)\n"
            + END.format("(?P=key)"),
            text,
        )
        assert match
        before, after = match["before"], match["after"]
        haystacks.add(before + after)
        assert before + after in held_out
        # A sentence end is never further than the next depth here, but for the text's two ends.
        assert not before or not after or before.endswith(".")
    assert len(haystacks) == 8


@pytest.mark.parametrize("cue", ["gkamradt", "easy"])
def test_dolores_park(cue, prose_config, prompt_tokenizer):
    task = f"needle(haystack=text,cue={cue})"
    question = "What is the best thing to do in San Francisco? Answer: "
    sentence = (
        "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a "
        "sunny day."
    )
    needle = f"\n{question if cue == 'easy' else ''}{sentence}\n"
    for document in documents(task, prose_config, prompt_tokenizer, 300, range(3)):
        text = prompt_tokenizer.decode(document.tokens)
        assert text.endswith(f"\n{question}{sentence}")
        assert needle in text and text.count(sentence) == 2
        ((start, count, _),) = document.answers
        answer = prompt_tokenizer.decode(document.tokens[start : start + count])
        assert answer.strip() == "eat a sandwich and sit in Dolores Park on a sunny day."


def test_accuracy_by_depth_by_hand():
    answers = rows(length=[100] * 3, distance=[99, 98, 2], exact_match=[True, False, True])
    grid = view_of("needle(depths=3)").grid(answers)
    assert grid.names == ["depth 0%", "depth 50%", "depth 100%"]
    assert grid.counts.tolist() == [2, 0, 1]
    np.testing.assert_equal(grid.accuracy, [0.5, np.nan, 1])
