"""What training refuses before its first update, and what ends it."""

import fcntl
import sys
from pathlib import Path

import pytest

from configs import find_config
from experiment.run import RunDirectory
from studies import piece
from studies.card import Card, Measurement, Member
from tests.errors.table import Row
from training.holding import held
from training.plan import make_plan

_TRAIN = "train.py tiny --workdir new"
_ADDRESS = (
    "{} is an address, not a path: nothing is read from or written to buckets and sites; use a "
    "folder of this machine, or one where the bucket is mounted"
)

_held = {}  # what a row keeps open


def _another_trainer(patch: pytest.MonkeyPatch) -> None:
    file = Path("run/.lock").open("w")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write("process 7 on elsewhere\n")
    file.flush()
    patch.setitem(_held, "run", file)


def _measure_what_diverged() -> None:
    member, measured = Member(name="ten"), Measurement()
    shared = find_config("tiny")
    card = Card(
        name="card", question="?", shared=shared, members=(member,), measurements=(measured,)
    )
    piece.work(piece.Piece(tuple(piece.runs_of(card, [0])), 0), Path("work"), [[]])


def _as_if_it_diverged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(piece, "_train", lambda *_, evaluate: True)
    patch.setattr(RunDirectory, "diverged_at", 7)


def _hold_what_was_trained_meanwhile() -> None:
    plan = make_plan([find_config("tiny")], [RunDirectory("new")])
    plan.runs[0].write_config(plan.configs[0], [])
    Path("new/checkpoints/5").mkdir(parents=True)
    with held(plan):
        pass


ROWS = [
    # Numbers that devices have no room for.
    Row(f"{_TRAIN} train.learning_rate=1e400", "train.learning_rate=1e400 must be {}"),
    Row(
        f"{_TRAIN} train.learning_rate=1e40",
        "train: learning_rate must be a finite number in [1.2e-38, 3.4e+38], got 1e+40",
    ),
    Row(f"{_TRAIN} train.clip_norm=1e-50", "train: clip_norm must be a finite number in {}"),
    Row(f"{_TRAIN} train.beta2=1", "train: beta2 must be a finite number in [0, 0.999999], got {}"),
    Row(f"{_TRAIN} model.norm_epsilon=0", "model: norm_epsilon must be a finite number in {}"),
    # A run that learns nothing.
    Row(
        f"{_TRAIN} train.learning_rate=1e30 train.max_skipped=3",
        "new diverged at step 2: from there on loss or gradient is not finite and no update is "
        "made; no checkpoint is older; begin again in another --workdir, with a lower "
        "train.learning_rate",
        code=1,
    ),
    Row(
        _measure_what_diverged,
        "work/card/ten,seed=0/whole-20 diverged at step 7: there is nothing to measure; give the "
        "member a lower train.learning_rate",
        given=_as_if_it_diverged,
    ),
    # Two trainers in one directory.
    Row(
        "train.py tiny --workdir run train.num_steps=2",
        "run is being trained by process 7 on elsewhere; wait for it or stop it, or use another "
        "--workdir",
        run=True,
        given=_another_trainer,
    ),
    Row(
        _hold_what_was_trained_meanwhile,
        "another process has trained new just now; run the same command again",
    ),
    # Where nothing can be written.
    *(
        Row(
            f"{command} --workdir file/new",
            f"{where} cannot be written to (Not a directory); use another --workdir",
            files={"file": ""},
        )
        for command, where in {
            "train.py tiny": "file/new",
            "sweep.py tiny model.rotary.base=10,100": "file/new/base=10",
        }.items()
    ),
    # A package that is not here.
    Row(
        f"{_TRAIN} train.tracking=wandb",
        "train.tracking=wandb needs wandb: pip install '.[tracking]' in the folder of ropewalk",
        given=lambda patch: patch.setitem(sys.modules, "wandb", None),
    ),
    # Addresses where a path is taken.
    *(
        Row(command, _ADDRESS.format(address))
        for command, address in {
            "train.py tiny --workdir s3://bucket/run": "s3://bucket/run",
            "sweep.py tiny --workdir gs://b/r model.rotary.base=1,2": "gs://b/r",
            "evaluate.py s3://bucket/run": "s3://bucket/run",
            "report.py s3://bucket/run": "s3://bucket/run",
            "-m studies status capability --workdir s3://b": "s3://b",
            "-m data.prepare --out s3://b": "s3://b",
            "-m theory curve --base 10 --out s3://b/x.png": "s3://b/x.png",
            f"{_TRAIN} start_from=s3://b/run@3": "s3://b/run",
            f"{_TRAIN} data.path=gs://b/x": "data: gs://b/x",
            f"{_TRAIN} data.tokenizer=gs://b/x": "data: gs://b/x",
            f"{_TRAIN} data.prepared_root=gs://b/x": "data: gs://b/x",
        }.items()
    ),
]
