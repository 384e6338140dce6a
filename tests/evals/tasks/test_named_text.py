"""Tasks on text that the command line names."""

import copy
import dataclasses
import gzip
import json

import pytest

from ropewalk.evals.options import Options
from ropewalk.evals.runner import Loaded, _by_shape
from ropewalk.evals.text import read_texts
from tests.evals.helpers import experiment, make_documents

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
    if task.startswith(("perplexity", "sliding_window")):
        assert sum(row.num_bytes.sum() for row in rows) == len(text)
        assert sum(row.answers[:, 1].sum() for row in rows) == len(ids)
    with pytest.raises(ValueError, match=f"has {len(ids)} tokens"):
        make_documents(named, text_config, tokenizer, length + 1, range(1))


def test_the_text_is_the_field_that_the_run_reads(text_config, text_tokenizer, tmp_path):
    config = experiment(dataclasses.replace(text_config.data, text_field="content"))
    named = f"shifted(path='{tmp_path}/%s.jsonl')"
    (tmp_path / "a.jsonl").write_text(json.dumps({"content": "a1 b2", "text": "c3"}))
    ids = text_tokenizer.encode("a1 b2")
    row, *_ = make_documents(named % "a", config, text_tokenizer, len(ids), range(1))
    assert row.tokens.tolist() == [text_tokenizer.bos_id, *ids]
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "c3"}))
    with pytest.raises(ValueError, match=r'jsonl:1: no "content" .*data\.text_field=content'):
        make_documents(named % "b", config, text_tokenizer, 2, range(1))


def test_runs_of_other_chats_read_other_documents(text_config, text_tokenizer):
    """Tokenizers of one file are equal, whatever their template and stop ids."""
    chats = [text_tokenizer, *(copy.copy(text_tokenizer) for _ in range(2))]
    chats[1].chat_template, chats[2].stop_ids = "{{ 1 }}", (7,)
    members = [Loaded("", text_config, chat, {}, 0, ()) for chat in (*chats, chats[1])]
    assert [len(group) for group in _by_shape(members, Options())] == [1, 2, 1]
