"""What probes of a run cannot look at."""

import dataclasses
import json
import shutil
import types
from pathlib import Path

import numpy as np

from configs import find_config
from evals.score import Candidate
from experiment import load
from experiment.run import find_runs
from probes import Subject, view
from probes.asked.band_ablation import band_ablation, still, without
from probes.asked.matching_keys import matching_keys
from probes.inside import Activations, Capture
from probes.questions import Questions, ask
from reporting import inside, members
from tests.errors.table import Row


def captured() -> Capture:
    """What one head of one layer holds for four tokens."""
    zeros = np.zeros((1, 1, 4, 1, 16), np.float32)
    return Capture(
        config=find_config("tiny").model,
        context_length=4,
        tokens_BT=np.zeros((1, 4), np.int32),
        positions_BT=np.arange(4, dtype=np.int32)[None],
        segment_ids_BT=np.ones((1, 4), np.int32),
        inside=Activations(zeros, zeros, zeros, None),
        hidden_BTD=None,
        params={},
    )


TINY = find_config("tiny").model
BARE = {"blocks": {"attention": {}}}
# All pairs of the first of two heads, in each of two layers.
ONE_HEAD = np.array([[[True] * 8, [False] * 8]] * 2)

ALONE = Questions(np.array([0]), np.array([3]), np.array([1]), np.array([[1]]))

PIECES = types.SimpleNamespace(vocab_size=512)


def longer() -> Capture:
    """`captured` with one token more."""
    return dataclasses.replace(captured(), tokens_BT=np.zeros((1, 5), np.int32))


def of_no_pair() -> Capture:
    """A capture of one token."""
    return dataclasses.replace(captured(), tokens_BT=np.zeros((1, 1), np.int32))


def other_tokenizer(patch) -> None:
    """A copy of the run with a tokenizer that has other bytes, and no record of them."""
    shutil.copytree("run", "other")
    with open("other/tokenizer.model", "ab") as file:
        file.write(b"\x1a\x02\x10\x01")
    record = json.loads(Path("other/config.json").read_text())
    record.pop("tokenizer", None)
    Path("other/config.json").write_text(json.dumps(record))


ROWS = [
    Row("-m probes run --step 7", "run has no checkpoint of step 7; it has [1, 2]", run=True),
    Row("-m probes run --documents 0", "documents must be at least 1, got 0", run=True),
    Row(
        "-m probes run --documents 99999999",
        "99999999 documents of 64 tokens do not fit: their queries, keys and values need {} GiB "
        "and {} GiB are free; at this length {} documents fit",
        run=True,
    ),
    Row(
        "-m probes run --length 99999999",
        "length must be at most 16777216 tokens, got 99999999",
        run=True,
    ),
    Row(
        "-m probes run --probes matching_kyes",
        "no probe 'matching_kyes': did you mean 'matching_keys'? (valid: {})",
        run=True,
    ),
    Row(
        "-m probes run --out run",
        "--out run is a folder; write --out run/inside.html",
        run=True,
    ),
    Row(
        "-m probes run --length 3",
        "kv does not fit length=3; the shortest that works with this tokenizer is 4",
        run=True,
    ),
    Row(
        lambda: ask(load("run"), task="lines"),
        "probes look at kv, whose every key has a known place, not at lines",
        run=True,
    ),
    Row(lambda: captured().logits(2), "no layer 2: layers are 0 to 1"),
    Row(
        lambda: matching_keys(captured(), ALONE, np.ones(1, bool)),
        "no question with another key before it: ask more or longer documents",
    ),
    Row(lambda: view({}, PIECES), "nothing to view: captures is empty"),
    Row(
        lambda: view(of_no_pair(), PIECES),
        "nothing to view: tokens of shape (1, 1) have no pair of them",
    ),
    Row(
        lambda: view({"a": captured(), "b": longer()}, PIECES),
        "a and b were captured on different tokens; side by side they need one text and one "
        "tokenizer",
    ),
    Row(
        lambda: view(captured(), types.SimpleNamespace(vocab_size=0)),
        "the captured ids go up to 0, the tokenizer has 0: give that of the run, run.tokenizer",
    ),
    Row(
        "-m probes.viewer run --out new.html --layers 2",
        "base=10000 has no layer 2: layers are 0 to 1",
        run=True,
    ),
    Row(
        "-m probes.viewer run --out new.html --max-size 0.01",
        "the page would be {} MB, max_size is 0.01: show fewer layers or heads, a shorter text, "
        "or allow more",
        run=True,
    ),
    Row(
        "-m probes.viewer run other --out new.html",
        "run and other have different tokenizers: side by side they need one",
        run=True,
        given=other_tokenizer,
    ),
    Row(
        lambda: inside.looked(*members.read(find_runs(["run"]))),
        "run/probes/matching_keys.npz is damaged; write it again: python -m probes run",
        files={"run/probes/matching_keys.npz": b"no arrays"},
        run=True,
    ),
    Row(
        "-m probes run --probes positions_seen",
        "run: the rows it was trained on are not to be had here: data of fingerprint {}, and this "
        "is 000000000000",
        given=lambda patch: patch.setattr(
            "probes.asked.positions_seen.open_data",
            lambda config: types.SimpleNamespace(fingerprint="0" * 64),
        ),
        run=True,
    ),
    Row(
        lambda: band_ablation(Subject(run=load("run")), [(0, 9)]),
        "no head 9 in layer 0: layers are 0 to 1, heads 0 to 1",
        run=True,
    ),
    Row(
        lambda: still(dataclasses.replace(TINY, num_kv_heads=1), Candidate({}, len), ONE_HEAD),
        "every 2 heads of a layer share a key, which turns one way: freeze pairs of all of them "
        "or of none",
    ),
    Row(
        lambda: without(dataclasses.replace(TINY, qk_norm=True), Candidate(BARE, len), ONE_HEAD),
        "qk_norm scales the queries of all heads alike: remove the same pairs from every head of "
        "a layer",
    ),
]
