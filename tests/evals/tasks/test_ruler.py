"""RULER's thirteen tasks against the official generator (github.com/NVIDIA/RULER at c3f5e3b)."""

import hashlib
import json
import re

import pytest

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
    articles = [
        [f"Fox {a}{p} is red. It has {a}{p}7 legs." for p in range(4)] for a in range(10, 20)
    ]
    data = [
        {"paragraphs": [{"context": text, "qas": _asked(text)} for text in texts]}
        for texts in articles
    ]
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": data}))
    items = [
        {
            "question": f"How many legs has fox {texts[0][4:7]}?",
            "answer": "no",
            "context": [[f"Fox {i}", text.split(" It")] for i, text in enumerate(texts)],
            "supporting_facts": [["Fox 2", 0], ["Fox 0", 1]],
        }
        for texts in articles
    ]
    (folder / "hotpotqa.json").write_text(json.dumps(items))
    return folder


def _asked(text: str) -> list[dict]:
    impossible = {"question": "?", "is_impossible": True, "answers": []}
    answers = [{"text": text.split()[6]}, {"text": "many"}]
    return [impossible, {"question": f"How many legs has {text[:7]}?", "answers": answers}]


@pytest.mark.parametrize("name", OFFICIAL)
def test_prompts_are_worded_as_the_official_ones(name, folder, prose_config, prompt_tokenizer):
    task, more, digest = OFFICIAL[name]
    task, length = task.format(folder), 4096 if name == "cwe" else 1000
    documents = make_documents(task, prose_config, prompt_tokenizer, length, range(10))
    prompts = set()
    for document in documents:
        prompt = prompt_tokenizer.decode(document.tokens[1 : document.answers[0, 0]])
        assert prompt.endswith(more)
        prompts.add(prompt)
        assert skeleton(prompt.removesuffix(more)) == digest
    assert len({document.number for document in documents}) == 10 and len(prompts) >= 10


@pytest.mark.parametrize("name", ["squad", "hotpotqa"])
def test_documents_of_questions(name, folder, prose_config, prompt_tokenizer):
    task, decode = f"qa(path='{folder}/{name}.json')", prompt_tokenizer.decode
    articles = [{f"Fox {a}{p}" for p in range(4)} for a in range(10, 20)]
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
        orders = {
            tuple(re.findall(r"Fox \d{3}", decode(document.tokens))) for document in documents
        }
        assert len(orders) == len(documents)


def test_files_that_are_not_of_questions(folder, prose_config, prompt_tokenizer):
    (folder / "other.json").write_text('{"data": [{"paragraphs": [{"qas": []}]}]}')
    for path, length, message in (
        ("other.json", 300, "other.json is not a file of SQuAD or HotpotQA: KeyError"),
        ("missing.json", 300, "missing.json is not a file of SQuAD"),
        ("hotpotqa.json", 100, r"question 0 do not fit length=100; ask for --lengths \d\d\d or"),
    ):
        with pytest.raises(ValueError, match=message):
            make_documents(
                f"qa(path='{folder}/{path}')", prose_config, prompt_tokenizer, length, range(1)
            )
