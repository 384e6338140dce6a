"""Errors of `python -m probes`, the viewer, and their functions."""

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
from probes.analyses.band_ablation import band_ablation, freeze_candidate, zero_candidate
from probes.analyses.matching_keys import matching_keys
from probes.inside import Activations, Capture
from probes.questions import Questions
from reporting import inside, members
from tests.errors.table import Row


def make_capture() -> Capture:
    """Return a capture of four tokens, of one head and one layer."""
    zeros = np.zeros((1, 1, 4, 1, 16), np.float32)
    return Capture(
        config=find_config("tiny").model,
        context_length=4,
        tokens_BT=np.zeros((1, 4), np.int32),
        positions_BT=np.arange(4, dtype=np.int32)[None],
        segment_ids_BT=np.ones((1, 4), np.int32),
        activations=Activations(zeros, zeros, zeros, None),
        hidden_BTD=None,
        params={},
    )


TINY = find_config("tiny").model
BARE = {"blocks": {"attention": {}}}
# All pairs of the first of two heads, in each of two layers.
ONE_HEAD = np.array([[[True] * 8, [False] * 8]] * 2)

ALONE = Questions(np.array([0]), np.array([3]), np.array([1]), np.array([[1]]))

PIECES = types.SimpleNamespace(vocab_size=512)


def capture_longer() -> Capture:
    """Return `make_capture` with one token more."""
    return dataclasses.replace(make_capture(), tokens_BT=np.zeros((1, 5), np.int32))


def capture_one_token() -> Capture:
    """Return a capture of one token."""
    return dataclasses.replace(make_capture(), tokens_BT=np.zeros((1, 1), np.int32))


def copy_with_other_tokenizer(patch) -> None:
    """Copy the run with a tokenizer that has other bytes, without a record of them."""
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
    Row(lambda: make_capture().logits(2), "no layer 2: layers are 0 to 1"),
    Row(
        lambda: matching_keys(make_capture(), ALONE, np.ones(1, bool)),
        "no question follows another key: use more or longer documents",
    ),
    Row(lambda: view({}, PIECES), "nothing to view: captures is empty"),
    Row(
        lambda: view(capture_one_token(), PIECES),
        "nothing to view: tokens of shape (1, 1) have fewer than two",
    ),
    Row(
        lambda: view({"a": make_capture(), "b": capture_longer()}, PIECES),
        "a and b were captured on different tokens: capture the same text with the same tokenizer",
    ),
    Row(
        lambda: view(make_capture(), types.SimpleNamespace(vocab_size=0)),
        "captured id 0 is not in the tokenizer of 0 ids: pass the run's, run.tokenizer",
    ),
    Row(
        "-m probes.viewer run --out new.html --layers 2",
        "base=10000 has no layer 2: layers are 0 to 1",
        run=True,
    ),
    Row(
        "-m probes.viewer run --out new.html --max-size 0.01",
        "the page would be {} MB, max_size is 0.01: show fewer layers or heads or a shorter text, "
        "or raise max_size",
        run=True,
    ),
    Row(
        "-m probes.viewer run other --out new.html",
        "run and other have different tokenizers: write a page for each",
        run=True,
        given=copy_with_other_tokenizer,
    ),
    Row(
        lambda: inside.read_zeros(*members.read(find_runs(["run"]))),
        "run/probes/matching_keys.npz is damaged; write it again: python -m probes run",
        files={"run/probes/matching_keys.npz": b"no arrays"},
        run=True,
    ),
    Row(
        "-m probes run --probes positions_seen",
        "run: its training data is not available: it was trained on data of fingerprint {}, and "
        "the data here has 000000000000",
        given=lambda patch: patch.setattr(
            "probes.analyses.positions_seen.open_data",
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
        lambda: freeze_candidate(
            dataclasses.replace(TINY, num_kv_heads=1), Candidate({}, len), ONE_HEAD
        ),
        "each group of 2 heads shares a key and its rotation: freeze the same pairs in all heads "
        "of a group",
    ),
    Row(
        lambda: zero_candidate(
            dataclasses.replace(TINY, qk_norm=True), Candidate(BARE, len), ONE_HEAD
        ),
        "qk_norm scales the queries of all heads alike: remove the same pairs from every head of "
        "a layer",
    ),
]
