"""Tasks on text that the command line names."""

import copy
import gzip
import json

import pytest

from ropewalk.evals.text import read_texts
from tests.evals.helpers import make_documents

TASKS = [
    "perplexity(tokens=500{})",
    "fixed_target(target=16{})",
    "repeated(tokens=4{})",
    "lagcopy(text=natural,lag=10{})",
    "sliding_window(stride=32,tokens=64{})",
    "shifted(first=100{})",
]


@pytest.mark.parametrize("task", TASKS)
def test_text_comes_from_the_file(task, text_config, text_tokenizer, tmp_path):
    def documents(named: str):
        return make_documents(task.format(named), text_config, text_tokenizer, 64, range(2))

    held_out = f"{text_config.data.path}/validation.jsonl"
    pairs = zip(documents(f",path='{held_out}'"), documents(""), strict=True)
    assert all(named.tokens.tolist() == own.tokens.tolist() for named, own in pairs)
    text = "z9 " * 400
    line = json.dumps({"text": text}).encode() + b"\n"
    (tmp_path / "other.jsonl.gz").write_bytes(gzip.compress(line) * 4)
    expected = {text_tokenizer.bos_id, *text_tokenizer.encode(text)}
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(text)
    for path in (tmp_path / "other.jsonl.gz", tmp_path):
        rows = documents(f",path='{path}'")
        assert rows and all(set(row.tokens.tolist()) <= expected for row in rows)
        (tmp_path / "other.jsonl.gz").unlink(missing_ok=True)
    assert read_texts(str(tmp_path), text_tokenizer).num_documents == 4  # none is cut in two


@pytest.mark.parametrize("has_eos", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_a_text_ends_before_eos(task, has_eos, text_config, text_tokenizer, tmp_path):
    """A model that BOS also ends documents has no EOS in them."""
    tokenizer = copy.copy(text_tokenizer)
    tokenizer.eos_id = text_tokenizer.eos_id if has_eos else tokenizer.bos_id
    text = "a1 b2 " * 40
    ids = tokenizer.encode(text)
    (tmp_path / "two.jsonl").write_text(2 * (json.dumps({"text": text}) + "\n"))
    named = task.format(f",path='{tmp_path}'").replace("tokens=64", "tokens=9999")
    length = len(ids) + 10 * task.startswith("lagcopy")  # the repeated text comes on top
    rows = make_documents(named, text_config, tokenizer, length, range(1))
    if not task.startswith("lagcopy"):
        assert rows[-1].tokens.tolist() == [tokenizer.bos_id, *ids]
    if task.startswith(("perplexity", "sliding_window", "shifted")):
        assert sum(row.num_bytes.sum() for row in rows) == len(text)
        assert sum(row.answers[:, 1].sum() for row in rows) == len(ids)
    with pytest.raises(ValueError, match=f"has {len(ids)} tokens"):
        make_documents(named, text_config, tokenizer, length + 1, range(1))
