import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ropewalk.data import tokenizing
from ropewalk.data.store import TokenStore
from ropewalk.data.tokenizer import Tokenizer
from tests.data.helpers import contents, plain_text, write_jsonl
from tests.data.helpers import run_prepare as run


@pytest.fixture
def root(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [plain_text(i) for i in range(150)])
    write_jsonl(tmp_path / "in" / "b.jsonl", [plain_text(i) for i in range(150, 300)])
    return tmp_path


def texts(folder, split):
    tokenizer, store = Tokenizer(folder / "tokenizer.model"), TokenStore(folder / split)
    documents = [store.document(i) for i in range(store.num_documents)]
    for ids in documents:
        assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
    return [tokenizer.decode(ids[1:-1]) for ids in documents]


def test_stores_hold_the_documents_split_by_hash_in_order(root):
    folder = run(root)
    split = {"train": [], "validation": []}
    for text in map(plain_text, range(300)):
        held_out = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 100 == 0
        split["validation" if held_out else "train"].append(text)
    assert split["validation"]
    assert {name: texts(folder, name) for name in split} == split
    report = json.loads((folder / "prepare.json").read_text())
    for name, expected in split.items():
        assert report[name]["documents"] == len(expected)
        assert report[name]["text_bytes"] == sum(len(text.encode()) for text in expected)
        assert report[name]["tokens"] == TokenStore(folder / name).num_tokens
    write_jsonl(root / "in" / "validation.jsonl", ["held out", "by hand"])
    folder = run(root)
    assert texts(folder, "validation") == ["held out", "by hand"]
    assert texts(folder, "train") == [plain_text(i) for i in range(300)]


def test_the_same_settings_find_the_same_folder(root, capsys):
    folder = run(root)
    report = (folder / "prepare.json").stat().st_mtime_ns
    # The folder depends only on settings that decide ids.
    assert run(root, context_length=99, seed=3, batch_size=7, retrieval_fraction=0.5) == folder
    assert (folder / "prepare.json").stat().st_mtime_ns == report
    (root / "in" / "later.md").write_text("not read")
    assert run(root) == folder and "left out: later.md" in capsys.readouterr().err
    assert run(root, vocab_size=601) != folder
    assert run(root, tokenizer=str(folder / "tokenizer.model")) != folder
    write_jsonl(root / "in" / "c.jsonl", ["more"])
    assert run(root) != folder


def test_a_folder_that_was_renamed_is_refused(root):
    folder = run(root)
    other = run(root, path=str(root / "in" / "a.jsonl"))
    shutil.rmtree(folder)
    other.rename(folder)
    with pytest.raises(ValueError, match="has been renamed: it holds other text"):
        run(root)


def test_threads_and_shards_change_no_id(root, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizing, "num_cpus", lambda: 1)
    alone = run(root)
    monkeypatch.setattr(tokenizing, "num_cpus", lambda: 3)
    monkeypatch.setattr(tokenizing, "BUNDLE", 2000)
    assert contents(run(root, prepared_root=str(tmp_path / "threaded"))) == contents(alone)
    monkeypatch.setattr(tokenizing, "SHARD_TOKENS", 5000)
    folder = run(root, prepared_root=str(tmp_path / "small"))
    index = json.loads((folder / "train" / "store.json").read_text())
    assert len(index["shards"]) > 3
    assert texts(folder, "train") == texts(alone, "train")
    stores = [TokenStore(f / "train") for f in (alone, folder)]
    np.testing.assert_array_equal(*(store.read(0, store.num_tokens) for store in stores))


def test_slices_get_no_extra_space(root, tmp_path, monkeypatch, llama_like):
    """Llama's tokenizer must add its space once per document, not once per slice."""
    (tmp_path / "llama.model").write_bytes(llama_like.model)
    monkeypatch.setattr(tokenizing, "SLICE", 100)
    folder = run(root, tokenizer=str(tmp_path / "llama.model"))
    both = texts(folder, "train") + texts(folder, "validation")
    assert set(both) == set(map(plain_text, range(300)))


@pytest.mark.parametrize(
    ("name", "effect"),
    [("c.jsonl", "counts twice"), ("valid.jsonl", "held-out text is trained on")],
)
def test_files_of_the_same_content_are_named(root, capsys, name, effect):
    shutil.copy(root / "in" / "b.jsonl", root / "in" / name)
    run(root)
    run(root)  # once in a process
    (note,) = [line for line in capsys.readouterr().err.splitlines() if "same content" in line]
    assert f"'b.jsonl' and '{name}'" in note and effect in note


def test_bad_documents_stop_or_are_counted_and_listed(root, capsys):
    with (root / "in" / "b.jsonl").open("a") as file:
        file.write('{"no": 1}\n{"text": ""}\n{"text": "fine"}\n')
    with pytest.raises(ValueError, match=r'b\.jsonl:151: no "text" in this JSON line'):
        run(root)
    assert not [path for n in ("prepare", "store") for path in root.rglob(f"{n}.json")]
    folder = run(root, on_bad_document="skip")
    assert texts(folder, "train")[-1] == "fine"
    skipped = json.loads((folder / "prepare.json").read_text())["skipped"]
    assert skipped["count"] == 2 and "b.jsonl:152: empty document" in skipped["first"][1]
    run(root, on_bad_document="skip")
    notes = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(notes) == 1 and "left out 2 documents" in notes[0] and "b.jsonl:151" in notes[0]
    with pytest.raises(ValueError, match=r"b\.jsonl:151: .* \(and 1 more\)"):
        run(root)  # data with skipped documents is not used for "error"


def test_subset_shares_keep_their_part(root, capsys):
    for name, first, subset in (("a", 0, "c4"), ("b", 300, "book")):
        subset_texts = [plain_text(i) for i in range(first, first + 300)]
        write_jsonl(root / "in" / f"{name}.jsonl", subset_texts, red_pajama_subset=subset)
    folder = run(root, subset_shares=(("c4", 0.25), ("book", 1.0), ("github", 0.0)))
    notes = [line for line in capsys.readouterr().err.splitlines() if "no document belongs" in line]
    assert notes == ["note: data.subset_shares: no document belongs to 'github'"]
    both = texts(folder, "train") + texts(folder, "validation")
    numbers = [int(text.split(":")[0].split()[1]) for text in both]
    assert sum(number >= 300 for number in numbers) == 300
    assert 45 < sum(number < 300 for number in numbers) < 105  # 75, 4 standard deviations of 7.5
    assert run(root) != folder


KILLED = """
import pathlib, sys
from ropewalk.data import tokenizing as t
from tests.data.helpers import run_prepare
if __name__ == "__main__":
    t.SHARD_TOKENS, t.BUNDLE, t.num_cpus = 2_000, 1_000, lambda: 2
    run_prepare(pathlib.Path(sys.argv[1]), prepared_root=sys.argv[2])
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bytes(root, monkeypatch):
    for name, value in (("SHARD_TOKENS", 2000), ("BUNDLE", 1000), ("num_cpus", lambda: 2)):
        monkeypatch.setattr(tokenizing, name, value)
    write_jsonl(root / "in" / "c.jsonl", [plain_text(i) for i in range(100)])
    script, killed = root / "killed.py", root / "killed"
    script.write_text(KILLED)

    def segments():
        reports = list(killed.glob("*/progress.json"))
        return json.loads(reports[0].read_text())["num_segments"] if reports else 0

    command = [sys.executable, script, root, killed]
    for minimum in (1, 6):
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.getcwd()})
        while segments() < minimum and process.poll() is None:
            time.sleep(0.001)
        time.sleep(0.003 * minimum)
        assert process.poll() is None, "it ended before it could be killed; use more text"
        process.send_signal(signal.SIGKILL)
        process.wait()
    (folder,) = killed.glob("jsonl-*")
    if not (folder / "prepare.json").exists():  # on a busy machine the last kill comes too late
        (folder / "progress.json.0badcafe.part").write_text("{")  # as if killed while writing
    assert run(root, prepared_root=str(killed)) == folder
    assert contents(folder) == contents(run(root))
    repeated, _ = json.loads((folder / "prepare.json").read_text())["repeated"]
    assert repeated == pytest.approx(100 / 400, abs=0.01)  # a few of both are held out


@pytest.mark.parametrize("count", [2, 9, 60, 300])
def test_some_document_is_held_out(tmp_path, tokenizer, count):
    """One in 100 by hash; if that is none, those that come next, until they are a tenth."""
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    texts = [plain_text(i) for i in range(count)]
    write_jsonl(tmp_path / "in" / "a.jsonl", texts)
    report = json.loads((run(tmp_path) / "prepare.json").read_text())
    sizes, held_out = [len(text.encode()) for text in texts], report["validation"]
    hashes = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) for text in texts]
    usual = sum(size for size, number in zip(sizes, hashes, strict=True) if number % 100 == 0)
    assert bool(usual) == (count == 300)
    least = usual or min(2**14, sum(sizes) / 10)
    assert least <= held_out["text_bytes"] < least + (0 if usual else max(sizes)) + 1
    assert report["train"]["documents"] + held_out["documents"] == count


PEAK = """
import pathlib, resource, sys
from tests.data.helpers import run_prepare
run_prepare(pathlib.Path(sys.argv[1]), source="txt")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
def test_a_long_text_is_in_memory_once(tmp_path, llama_like):
    """It took 44 bytes for each of its bytes; characters have 4 bytes because of one emoji."""
    (tmp_path / "t.model").write_bytes(llama_like.model)
    (tmp_path / "in").mkdir()
    text = "\U0001f642" + "".join(plain_text(i, 2000) for i in range(50)) * 24
    (tmp_path / "in" / "a.txt").write_text(text)
    command = [sys.executable, "-c", PEAK, tmp_path]
    done = subprocess.run(command, capture_output=True, check=True, cwd=os.getcwd())
    assert 1024 * int(done.stdout) < 2e8 + 12 * len(text)
