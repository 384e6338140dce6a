"""Retrieval by tokenizers with pieces of several digits: documents are encoded in one piece."""

import dataclasses
import io
import itertools
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from rich.console import Console

from ropewalk.data.prepare import prepare
from ropewalk.data.task import Document
from ropewalk.data.text_task import encode_whole
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import runner
from ropewalk.interop.importing import import_folder
from tests.data import json_tokenizers
from tests.evals.helpers import PROMPT_WORDS, experiment, make_documents
from tests.evals.test_tasks import IN_WORDS, floor

TASKS = (*IN_WORDS, "chat_needles(needles=3)", "passkey(chat=True)")
# Folders with published tokenizers that are not in this repository: llama3/tokenizer.json, ...
PUBLISHED = sorted(Path(os.environ.get("TOKENIZERS", "/nowhere")).glob("*/tokenizer.json"))
CHAT = "{% for m in messages %}</s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}assistant\n"


def texts():
    random = np.random.default_rng(0)
    for _ in range(400):
        numbers = " ".join(f"is: {n}" for n in random.integers(10, 10**5, 9))
        yield f"{PROMPT_WORDS} {numbers} is <{numbers[4:7]}>"


@pytest.fixture(scope="module", params=["across_spaces", "llama3", "gpt2"])
def joined(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make = getattr(json_tokenizers, request.param)
    return Tokenizer(make(texts(), folder, size=1500), chat_template=CHAT)


@pytest.fixture
def config(joined, prose_config, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(joined.model)
    data = dataclasses.replace(
        prose_config.data, tokenizer=str(tmp_path / "tokenizer.json"), prepared_root=str(tmp_path)
    )
    prepare(data)
    return experiment(data)


@pytest.mark.parametrize("task", TASKS)
def test_ids_are_those_of_the_text_in_one_piece(task, joined, config):
    library = tokenizers.Tokenizer.from_str(joined.model.decode())
    name, length = task.partition("(")[0], floor(task, config, joined) + 700
    is_number = name not in ("vt", "cwe", "fwe") and "cue" not in task
    digits = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}" if "uuids" in task else r"\d{5,}"
    pattern = digits if is_number else r" (?:eat a.*day\.|[a-zA-Z]+(?:-[a-z]+)?(?=$| |\n))"
    for document in make_documents(task, config, joined, length, range(2)):
        text = library.decode(document.tokens[1:].tolist(), skip_special_tokens=False)
        expected = library.encode(text, add_special_tokens=False)
        assert document.tokens.tolist() == [joined.bos_id, *expected.ids]
        assert length - 80 < len(document.tokens) <= length + 1
        assert document.merged is not None
        spans = [(0, 0), *expected.offsets]
        for (start, count, distance), merged in zip(
            document.answers.tolist(), document.merged.tolist(), strict=True
        ):
            begin, end = spans[start][0], spans[start + count - 1][1]
            answer = re.findall(pattern, text[begin:end])[-1]
            assert merged == (answer != text[begin:end])
            # The first id of the source holds the start of the answer.
            source, after = spans[start - 1 - distance]
            assert source <= text.index(answer, source) < after


def test_answers_are_found_by_bytes(tmp_path):
    tokenizer = Tokenizer(json_tokenizers.gpt2(texts(), tmp_path, size=1500))
    parts = ["\u4e2d" * 2, " is: ", "48213", ". So: ", "48213"]
    ids = [tokenizer.encode(part, inside=True) for part in parts]
    ids[0] = ids[0][1:]  # in the middle of a character
    tokens = [tokenizer.bos_id, *itertools.chain(*ids)]
    source, start = 1 + len(ids[0] + ids[1]), len(tokens) - len(ids[4])
    answers = [[start, len(ids[4]), start - 1 - source]]
    result = encode_whole(tokenizer, Document.from_lists(tokens, answers))
    expected = tokenizer.encode("\u4e2d is: 48213. So: 48213", inside=True)
    assert result.tokens.tolist() == [tokenizer.bos_id, *expected]
    ((start, count, distance),) = result.answers.tolist()
    assert tokenizer.decode(result.tokens[start : start + count]) == " 48213"
    assert tokenizer.decode(result.tokens[start - 1 - distance :]) == " 48213. So: 48213"
    assert result.merged is not None and result.merged.tolist() == [True]


@pytest.mark.hf
@pytest.mark.parametrize("task", ["needle", "vt"])
@pytest.mark.parametrize("path", ["llama3", "gpt2", "qwen", *PUBLISHED], ids=str)
def test_ids_and_scores_are_those_of_transformers(path, task, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "model"
    if isinstance(path, str):
        getattr(json_tokenizers, path)(texts(), folder, size=1500)
    else:
        shutil.copytree(path.parent, folder)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        vocab_size=max(theirs.get_vocab().values()) + 1, hidden_size=32, intermediate_size=48,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=4096,
        tie_word_embeddings=False, initializer_range=0.2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(settings).eval()
    model.save_pretrained(folder)
    run = import_folder(folder, tmp_path / "run", compare=False)
    tokenizer, length = run.tokenizer, 2600
    documents = make_documents(task, run.config, tokenizer, length, range(20))
    options = runner.Options(tasks=[task], lengths=[length], documents=4)
    console = Console(file=io.StringIO(), width=1000)
    ((_, _, rows),) = runner.evaluate([run.path], options, console=console)
    some = any(document.merged is not None and document.merged.any() for document in documents[:4])
    assert some == (f"{task} at {length}: the tokenizer joins" in console.file.getvalue())

    for document in documents:
        if not tokenizer.splits_digits:
            text = theirs.decode(document.tokens[1:], clean_up_tokenization_spaces=False)
            ids = theirs(text, add_special_tokens=False)["input_ids"]
            assert document.tokens.tolist() == [tokenizer.bos_id, *ids]
    documents = [document for document in documents if document.number < 4]
    answers = np.concatenate([document.answers for document in documents])
    assert rows["num_tokens"].tolist() == answers[:, 1].tolist()
    with torch.no_grad():
        inputs = [torch.tensor(document.tokens[None].astype(np.int64)) for document in documents]
        logits = [model(ids).logits[0].double() for ids in inputs]
    losses = [
        -torch.log_softmax(part[start - 1 : start + count - 1], 1)
        .gather(1, ids[0, start : start + count, None])
        .mean()
        for document, ids, part in zip(documents, inputs, logits, strict=True)
        for start, count, _ in document.answers.tolist()
    ]
    np.testing.assert_allclose(rows["nll"], losses, atol=1e-4)
