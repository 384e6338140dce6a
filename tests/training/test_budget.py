"""Estimates of `--check`: own arithmetic for the config `own_text`."""

import re
import shutil

from ropewalk.training import budget
from tests.in_process import call


def check(path, *overrides):
    command = "train.py", "own_text", "--workdir", path / "run", f"data.path={path}", "--check"
    return call(*command, *overrides)


def test_check_states_rows_passes_time_and_disk(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("1234567 " * 125_000)  # 1 MB
    monkeypatch.setattr(budget, "_matmul_rate", lambda: 2e11)
    output = check(tmp_path)
    assert "rows: 100% text (data.retrieval_fraction=0)" in output
    # 12 bits of vocabulary, .27 bytes each; 1221 steps of 16 rows of 512 tokens.
    tokens, num_read = 1e6 / 3.24, 1221 * 16 * 512
    assert f"text: about {tokens:,.0f} tokens; 32 passes over the text, more than 4" in output
    assert round(num_read / tokens) == 32
    # Per token 6 FLOP for each of 4,210,688 weights of matrices, and attention over half of 512.
    flops = num_read * (6 * 4_210_688 + 3 * 2 * 4 * 256 * 512)
    assert f"time: {flops:.2g} FLOPs, about {flops / 1e11 / 60:.0f} min" in output
    # Parameters and two moments, float32, of two checkpoints and of one that is being written.
    assert "4,212,992 parameters" in output
    num_bytes = 3 * 3 * 4 * 4_212_992 + 2 * tokens
    assert re.search(rf"\ndisk: about {num_bytes / 1e9:.3g} GB .*; [\d.e+]+ GB are free", output)
    usage = shutil.disk_usage(tmp_path)._replace(free=10**8)
    monkeypatch.setattr(budget.shutil, "disk_usage", lambda path: usage)
    assert "\nwarning: disk: about" in check(tmp_path)


def test_check_states_the_share_of_retrieval_documents_and_ids_that_no_text_uses(tmp_path):
    (tmp_path / "a.txt").write_text("words " * 100)
    tasks = ("data.retrieval_fraction=0.125", "data.retrieval_tasks=[kv]")
    output = check(tmp_path, *tasks, "data.subset_shares=[[github,0.5]]")
    assert "tokens before data.subset_shares; at least" in output and "no text uses" not in output
    assert "87.5% text, 12.5% retrieval documents (kv), whose loss counts only answers" in output
    unused = f"the tokenizer has 700 ids, and the model {4096 - 700} more, which no text uses"
    assert f"{unused}; model.vocab_size={6 * 128}" in check(tmp_path, "data.vocab_size=700")
