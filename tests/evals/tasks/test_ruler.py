"""RULER's thirteen tasks against the official generator (github.com/NVIDIA/RULER at c3f5e3b).

Digests hold the wording; what is drawn at random is read from the text of the prompts.
"""

import hashlib
import json
import re
from collections import Counter

import numpy as np
import pytest

from ropewalk import evals
from ropewalk.evals.score import score_answers
from ropewalk.evals.tasks import qa
from tests.evals.helpers import make_documents

ESSAY, HAY = "needle(haystack=text{})", "needle(haystack=needle{})"
# Task, what our prompt has beyond the official one before the first answer, and the digest of
# `skeleton` of each of ten official prompts (SmolLM2's tokenizer, 2,048 tokens, 4,096 for cwe).
OFFICIAL = {
    "niah_single_1": ("needle", " ", "d1dd794827f7"),
    "niah_single_2": (ESSAY.format(""), " ", "784114a09391"),
    "niah_single_3": (ESSAY.format(",value_type=uuids"), " ", "e2edd2a2a9ae"),
    "niah_multikey_1": (ESSAY.format(",keys=4"), " ", "784114a09391"),
    "niah_multikey_2": (HAY.format(""), " ", "93868fd6b270"),
    "niah_multikey_3": (HAY.format(",key_type=uuids,value_type=uuids"), " ", "41ffca1fbaa4"),
    "niah_multivalue": (ESSAY.format(",values=4"), " ", "6e741a1ec90b"),
    "niah_multiquery": (ESSAY.format(",queries=4"), " ", "6e741a1ec90b"),
    "vt": ("vt", "", "37b603814fc3"),
    "cwe": ("cwe", " 1.", "5bdaf3687643"),
    "fwe": ("fwe", "", "e052b6947957"),
    "qa_1": ("qa(path='{}/squad.json')", "", "5760604c3b01"),
    "qa_2": ("qa(path='{}/hotpotqa.json')", "", "5760604c3b01"),
}
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
PLACES = (
    (UUID, "U"),
    (r"(?<!\d)(\d{5}|\d{7})(?!\d)", "N"),
    (r"(special magic \w+ for )[^:?\n]+?(?=( is: | mentioned))", r"\1K"),
    (r"\b(VAR) ([A-Z]{5}|[A-Z]{3})\b", r"\1 V"),
    (r"(?<=they are: )( [A-Z]{3}){5}", " V"),
    (r"1\. [^\n]*(?=\n)", "LIST"),
    (r"(?<=words\. )[a-z. ]+(?=\n)", "WORDS"),
    (r"(?<=Question: )[^\n]*(?= Answer:$)", "Q"),
)


def skeleton(prompt: str) -> str:
    """The prompt's wording, spaces and lines, without what is drawn at random."""
    for pattern, place in PLACES:
        prompt = re.sub(pattern, place, prompt)
    needle = r"[\n ]One of the special magic \w+ for K is: [NU]\."
    needles, text = set(re.findall(needle, prompt)), re.sub(needle, "", prompt)
    if text.startswith("Answer"):
        text = re.sub(r"(?<=\n)Document \d+:\n(?s:.*)(?=\n\nAnswer)", "Document", text)
    elif "grass" not in text:  # an essay, or nothing but needles
        text = re.sub(r"(?<=afterwards\.)(?s:.*)(?=\nWhat )", "", text)
    first, *lines, last = text.split("\n")
    parts = first, sorted({*lines}), sorted(needles), last
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small files in the formats of SQuAD and HotpotQA."""
    folder = tmp_path_factory.mktemp("qa")
    foxes = [[f"Fox {a}{p} is red. It has {a}{p}7 legs." for p in range(4)] for a in range(10, 20)]
    data, items = [], []
    for texts in foxes:
        paragraphs = []
        for text in texts:
            answers = [{"text": answer} for answer in (text.split()[6], "many")]
            # As in version 2.0, as in 1.1, and without any answer.
            fields = {"is_impossible": True, "plausible_answers": answers}, {"answers": answers}, {}
            question = {"id": "5", "question": f"How many legs has {text[:7]}?", "answers": []}
            paragraphs.append({"context": text, "qas": [question | other for other in fields]})
        data.append({"paragraphs": paragraphs})
        context = [[f"Fox {i}", text.split(" It")] for i, text in enumerate(texts)]
        item = {"question": f"How many legs has fox {texts[0][4:7]}?", "answer": "no"}
        facts = [["Fox 2", 0], ["Fox 0", 1]]
        items.append(item | {"context": context, "supporting_facts": facts})
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": data}))
    (folder / "hotpotqa.json").write_text(json.dumps(items))
    return folder


def test_ruler_names_all_thirteen():
    files = dict(qa_1="x/dev-v2.0.json", qa_2="x/hotpot_dev_distractor_v1.json")
    tasks = [f"qa(path='{files[n]}')" if n in files else OFFICIAL[n][0] for n in OFFICIAL]
    assert [task.expression for task in evals.parse_all(["ruler(path=x)", "vt"])] == tasks
    with pytest.raises(ValueError, match="ruler is thirteen tasks; name one"):
        evals.parse("ruler").document(None, None)


@pytest.mark.parametrize("name", OFFICIAL)
def test_prompts_and_scores_are_the_official_ones(name, folder, prose_config, prompt_tokenizer):
    task, more, digest = OFFICIAL[name]
    task, length = task.format(folder), 4096 if name == "cwe" else 1000
    documents = make_documents(task, prose_config, prompt_tokenizer, length, range(10))
    prompts = set()
    for document in documents:
        prompt = prompt_tokenizer.decode(document.tokens[1 : document.answers[0, 0]])
        assert prompt.endswith(more)
        prompts.add(prompt)
        assert skeleton(prompt.removesuffix(more)) == digest
        check_scores(document, prompt_tokenizer)
    assert len({document.number for document in documents}) == 10 and len(prompts) >= 10


def check_scores(document, tokenizer):
    """Right, partly right and wrong outputs have RULER's score: the share of answers in the text.

    An output in another form is right to RULER only: other case or order, or words before it.
    """
    starts, answers = document.answers[:, 0], answers_of(document, tokenizer)
    ends = starts + document.answers[:, 1] - 1
    for wrong in (ends[:0], ends[::2], ends):
        output = document.tokens.copy()
        output[wrong] = tokenizer.encode("~", inside=True)
        text = tokenizer.decode(output[starts[0] :]).lower()
        official = np.mean([answer.lower() in text for answer in answers])
        correct = (output == document.tokens)[None, 1:]
        result = score_answers(np.zeros(correct.shape), correct, 1 - correct, document.answers)
        assert result.exact_match.mean() == official


@pytest.mark.parametrize("name", ["squad", "hotpotqa"])
def test_documents_of_questions(name, folder, prose_config, prompt_tokenizer):
    task, decode = f"qa(path='{folder}/{name}.json')", prompt_tokenizer.decode
    articles = [{f"Fox {a}{p}" for p in range(4)} for a in range(10, 20)]
    with pytest.raises(ValueError, match=r"do not fit length=100; ask for --lengths \d\d\d or"):
        make_documents(task, prose_config, prompt_tokenizer, 100, range(1))
    orders = set()
    for length in (300, 5000):
        documents = make_documents(task, prose_config, prompt_tokenizer, length, range(99))
        assert len(documents) == (40 if name == "squad" else 10)
        for i, document in enumerate(documents):
            prompt = decode(document.tokens[1:])
            parts = re.split(r"\n\nDocument (\d+):\n", prompt.rpartition("\n\nAnswer")[0])
            assert parts[1::2] == list(map(str, range(1, len(parts) // 2 + 1)))
            foxes = [re.findall(r"Fox \d{3}", text)[0] for text in parts[2::2]]
            assert len(foxes) == len(set(foxes)) and (len(foxes) == 40) == (length == 5000)
            assert articles[i // 4 if name == "squad" else i] <= set(foxes)
            ((start, count, distance),) = document.answers.tolist()
            fox = f"Fox {10 + i // 4}{i % 4}" if name == "squad" else f"Fox {10 + i}2"
            source = decode(document.tokens[start - 1 - distance :])
            assert source.startswith(f"{fox} is" if name == "squad" else f"Fox 2\n{fox} is")
            answer = f" {fox[4:]}7" if name == "squad" else " no"
            assert decode(document.tokens[start : start + count]) == answer
            assert start + count == len(document.tokens) <= length + 1
            orders.add((length, *foxes))
    assert len(orders) == 2 * len(documents)


def test_files_without_the_supporting_document_or_cut_short_are_refused(folder):
    item = json.loads((folder / "hotpotqa.json").read_text())[0]
    (folder / "fullwiki.json").write_text(json.dumps([item | {"context": item["context"][:2]}]))
    with pytest.raises(ValueError, match=r"no document Fox 2; use hotpot_dev_distractor_v1.json"):
        qa._read(f"{folder}/fullwiki.json")
    (folder / "cut.json").write_text((folder / "hotpotqa.json").read_text()[:-9])
    with pytest.raises(ValueError, match=r"cut.json is not a file of SQuAD or HotpotQA: .*not J"):
        qa._read(f"{folder}/cut.json")


def answers_of(document, tokenizer) -> list[str]:
    """The text of each answer."""
    return [tokenizer.decode(document.tokens[s : s + n]).strip() for s, n, _ in document.answers]


NEEDLE = r"One of the special magic numbers for {} is: {}\."


@pytest.mark.parametrize("hay", ["noise", "needle"])
def test_several_answers_are_rulers_multivalue_and_multiquery(hay, prose_config, prompt_tokenizer):
    task = f"needle(keys=5,queries=3,values=2,haystack={hay})"
    pattern = r"(?P<text>(?s:.)*\n)What .* for (?P<keys>.*) mentioned .* for (?P=keys) mentioned "
    pattern += ".* are (?P<end>.*)"
    ends = set()
    for document in make_documents(task, prose_config, prompt_tokenizer, 1500, range(9)):
        match = re.fullmatch(pattern, prompt_tokenizer.decode(document.tokens))
        needles = re.findall(NEEDLE.format("(.*)", r"(\d{7})") + "\n", match["text"])
        counts = Counter(Counter(key for key, _ in needles).values())
        assert counts[2] == 5 and (hay == "needle") == (counts[1] > 10) and set(counts) <= {1, 2}
        asked = re.fullmatch("(.*), (.*), and (.*)", match["keys"])
        assert asked and len(set(asked.groups())) == 3
        right = [value for key in asked.groups() for name, value in needles if name == key]
        assert match["end"] == ", ".join(right) and len(right) == 6
        assert answers_of(document, prompt_tokenizer) == right
        ends.add(match["end"])
    assert len(ends) == 9


def test_depths_differ_in_nothing_else(prose_config, prompt_tokenizer):
    for task in ("needle(keys=3)", "needle(haystack=text,keys=3)", "needle(haystack=text)"):
        result = make_documents(task, prose_config, prompt_tokenizer, 800, range(6))
        for number in range(6):
            mine = [document for document in result if document.number == number]
            assert [document.first_query for document in mine] == list(range(8))
            texts = [prompt_tokenizer.decode(document.tokens) for document in mine]
            sentence = re.search(NEEDLE.format(r"\S+", texts[0][-7:]), texts[0])[0]
            assert {text.count(sentence) for text in texts} == {1}
            assert len({re.sub(rf"\s{sentence}|{sentence}\s", "", text) for text in texts}) == 1
            distances = [document.answers[0, 2] for document in mine]
            # Evenly spaced to the nearest line or sentence.
            np.testing.assert_allclose(np.diff(distances), -np.ptp(distances) / 7, atol=60)
            assert distances[0] > 650 and distances[-1] < 80


@pytest.mark.parametrize("cue", ["gkamradt", "easy"])
def test_dolores_park(cue, prose_config, prompt_tokenizer):
    question = "What is the best thing to do in San Francisco? Answer: "
    answer = "eat a sandwich and sit in Dolores Park on a sunny day."
    sentence = f"The best thing to do in San Francisco is {answer}"
    needle = f"\n{question if cue == 'easy' else ''}{sentence}\n"
    task = f"needle(haystack=text,cue={cue})"
    for document in make_documents(task, prose_config, prompt_tokenizer, 300, range(3)):
        text = prompt_tokenizer.decode(document.tokens)
        assert text.endswith(f"\n{question}{sentence}")
        assert needle in text and text.count(sentence) == 2
        assert answers_of(document, prompt_tokenizer) == [answer]


@pytest.mark.parametrize("hops", [4, 2])
def test_variables_of_a_chain(hops, prose_config, prompt_tokenizer):
    task = f"vt(hops={hops})"
    for document in make_documents(task, prose_config, prompt_tokenizer, 1200, range(12)):
        *parts, question = prompt_tokenizer.decode(document.tokens).split("Question: ")
        value, names = re.findall(r"assigned the value (\d{5})[ ,]", question), []
        for source, name in re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?(\w+)", parts[-1]):
            assert name == (names[-1] if names else value[0])
            names.append(source)
        assert answers_of(document, prompt_tokenizer) == names and len(set(names)) == hops + 1
        # The example has few lines of noise.
        noise = [part.count("The grass is green.") for part in parts]
        assert noise[0] == hops + 1 < noise[1] - 2


def numbered(text):
    """The words of `1. word 2. word ...`."""
    items = re.findall(r"(\d+)\. (\S+)", text)
    assert text == " ".join(f"{number}. {word}" for number, word in items)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    return [word for _, word in items]


@pytest.mark.parametrize(
    ("length", "example", "query"),
    [(2000, {3: 10, 1: 10}, {6: 10, 1: None}), (4096, {10: 10, 3: 30}, {30: 10, 3: None})],
)
def test_words_occur_as_often_as_officially(length, example, query, prose_config, prompt_tokenizer):
    orders = set()
    for document in make_documents("cwe", prose_config, prompt_tokenizer, length, range(6)):
        parts = re.findall(r"(?:^|\n|: )(1\. .*)", prompt_tokenizer.decode(document.tokens))
        lists = [numbered(part) for part in parts]
        for listed, answer, expected in zip(lists[::2], lists[1::2], (example, query), strict=True):
            counts = Counter(listed)
            result = Counter(counts.values())
            assert set(result) == set(expected)
            assert all(result[often] == number for often, number in expected.items() if number)
            # The only order that a model can know: that of first occurrence.
            assert answer == [word for word in counts if counts[word] == max(expected)]
        orders.add(tuple(answer.index(word) if word in answer else -1 for word in listed[:60]))
        assert answers_of(document, prompt_tokenizer) == answer
    # The same shuffle for every document would put the common words at the same places.
    assert len(orders) == 6


@pytest.mark.parametrize("length", [330, 8000])
def test_the_three_most_frequent_words_in_order(length, prose_config, prompt_tokenizer):
    for document in make_documents("fwe", prose_config, prompt_tokenizer, length, range(10)):
        text = prompt_tokenizer.decode(document.tokens)
        coded, answer = re.search(r"coded words\. (.*)\nQ(?s:.*) words are: (.*)", text).groups()
        (dots, _), *ranked = Counter(coded.split(" ")).most_common()
        assert dots == "..." and all(re.fullmatch("[a-z]{6}", word) for word, _ in ranked)
        counts = [count for _, count in ranked]
        assert sorted(set(counts[:4]), reverse=True) == counts[:4]  # no ties
        assert answer.split(" ") == [word for word, _ in ranked[:3]]
        assert answers_of(document, prompt_tokenizer) == answer.split(" ")
    if length == 8000:
        # Zeta, alpha 2: ranks 3, 4 and 5 have 4/9, 1/4 and 4/25 of the words of rank 2.
        shares = np.array(counts[:4]) / counts[0]
        np.testing.assert_allclose(shares, [1, 4 / 9, 1 / 4, 4 / 25], atol=0.02)
        assert coded.split(" ").count("...") / counts[0] == pytest.approx(4, abs=0.02)
        # A word for every 50 tokens, less those that round to none.
        assert 30 < len(counts) < 160
