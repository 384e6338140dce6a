"""What probes of a run cannot look at."""

import numpy as np

from configs import find_config
from experiment import load
from experiment.run import find_runs
from probes.asked.matching_keys import matching_keys
from probes.inside import Capture, Inside
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
        inside=Inside(zeros, zeros, zeros, None),
        hidden_BTD=None,
        params={},
    )


ALONE = Questions(np.array([0]), np.array([3]), np.array([1]), np.array([[1]]))

ROWS = [
    Row("-m probes run --step 7", "run has no checkpoint of step 7; it has [1, 2]", run=True),
    Row("-m probes run --documents 0", "documents must be at least 1, got 0", run=True),
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
    Row(
        lambda: inside.zeros(*members.read(find_runs(["run"]))),
        "run/probes/matching_keys.npz is damaged; write it again: python -m probes run",
        files={"run/probes/matching_keys.npz": b"no arrays"},
        run=True,
    ),
]
