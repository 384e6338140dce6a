"""Tasks on text that the command line names."""

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
