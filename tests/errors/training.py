"""Errors of training, before its first update and during it."""

import fcntl
import sys
from pathlib import Path

import pytest
from etils.epath import backend

from configs import find_config
from experiment.items import read_items
from experiment.run import RunDirectory
from reporting.paths import page_of
from studies import work
from studies.card import Card, Measurement, Member
from studies.jobs import card_runs
from tests.errors.table import Row
from training.plan import make_plan
from training.run_lock import lock_runs
from utils import paths
from utils.buckets import BucketPath

_TRAIN = "train.py tiny --workdir new"
_ADDRESS = (
    "{} cannot be read or written: of addresses, gs:// alone can; use that, a folder of this "
    "machine, or one where the bucket is mounted"
)

_open_files = {}  # what a row keeps open


def _another_trainer(patch: pytest.MonkeyPatch) -> None:
    file = Path("run/.lock").open("w")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write("process 7 on elsewhere\n")
    file.flush()
    patch.setitem(_open_files, "run", file)


def _measure_what_diverged() -> None:
    member, measured = Member(name="ten"), Measurement()
    shared = find_config("tiny")
    card = Card(
        name="card", question="?", shared=shared, members=(member,), measurements=(measured,)
    )
    work.train_budget(card_runs(card, 0), 0, Path("work"), [[]])


def _as_if_it_diverged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(work, "_train", lambda *_, evaluate: True)
    patch.setattr(RunDirectory, "diverged_at", 7)


def _hold_what_was_trained_meanwhile() -> None:
    plan = make_plan([find_config("tiny")], [RunDirectory("new")])
    plan.runs[0].write_config(plan.configs[0], [])
    Path("new/checkpoints/5").mkdir(parents=True)
    with lock_runs(plan):
        pass


def _hold_what_another_trains_by_now() -> None:
    plan = make_plan([find_config("tiny")], [RunDirectory("gs://bucket/new")])
    with lock_runs(plan) as check:
        check()


class _Files:
    """Files of an empty bucket, which may be read and written to or not."""

    def __init__(self, refuses: bool, says: bool = True):
        self._refuses, self._says = refuses, says

    def cat_file(self, path: str) -> bytes:
        self.pipe_file()
        return b"process 7 on elsewhere\n"

    def exists(self, path: str) -> bool:
        if not self._says:
            self.pipe_file()
        return False

    def info(self, path: str) -> dict:
        self.exists(path)
        raise FileNotFoundError(path)

    def find(self, path: str) -> list[str]:
        self.exists(path)
        return []

    def pipe_file(self, *_, **__) -> None:
        if self._refuses:
            raise OSError("Forbidden: nobody may")

    rm = pipe_file


def _a_bucket(patch: pytest.MonkeyPatch, *, refuses: bool, says: bool = True) -> None:
    patch.setattr(paths, "_has_gcsfs", lambda: True)
    patch.setattr(backend.fsspec_backend, "fs", lambda _: _Files(refuses, says))


def _a_bucket_that_takes_all(patch: pytest.MonkeyPatch) -> None:
    _a_bucket(patch, refuses=False)


def _a_bucket_that_takes_nothing(patch: pytest.MonkeyPatch) -> None:
    _a_bucket(patch, refuses=True)


def _a_bucket_that_says_nothing(patch: pytest.MonkeyPatch) -> None:
    _a_bucket(patch, refuses=True, says=False)


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
        "new diverged at step 2: loss or gradient is not finite from there on and every update "
        "is skipped; no checkpoint is older; start again in another --workdir, with a lower "
        "train.learning_rate",
        code=1,
    ),
    Row(
        _measure_what_diverged,
        "work/card/ten,seed=0/decayed-20 diverged at step 7 and cannot be measured; give the "
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
            "sweep.py tiny --workdir az://b/r model.rotary.base=1,2": "az://b/r",
            "evaluate.py s3://bucket/run": "s3://bucket/run",
            "report.py s3://bucket/run": "s3://bucket/run",
            "-m studies status capability --workdir s3://b": "s3://b",
            "-m data.prepare --out s3://b": "s3://b",
            "-m theory curve --base 10 --out s3://b/x.png": "s3://b/x.png",
            f"{_TRAIN} start_from=s3://b/run@3": "s3://b/run",
            "-m probes s3://bucket/run": "s3://bucket/run",
            "-m theory curve --base 10 --out https://b/x.png": "https://b/x.png",
            f"{_TRAIN} data.path=S3://b/x": "data: S3://b/x",
            f"{_TRAIN} data.tokenizer=abfs://b/x": "data: abfs://b/x",
            f"{_TRAIN} data.prepared_root=file:///x": "data: file://x",
        }.items()
    ),
    # A bucket, and nothing here that reads one.
    *(
        Row(
            command,
            f"{address} needs gcsfs: pip install '.[gcs]' in the folder of ropewalk",
            given=lambda patch: patch.setitem(sys.modules, "gcsfs", None),
        )
        for command, address in {
            "train.py tiny --workdir gs://bucket/run": "gs://bucket/run",
            "sweep.py tiny --workdir gs://bucket/r model.rotary.base=10,100": "gs://bucket/r",
            "evaluate.py gs://bucket/run": "gs://bucket/run",
            "report.py gs://bucket/run": "gs://bucket/run",
            "-m studies run capability --workdir gs://bucket/s": "gs://bucket/s",
            "-m studies report capability --rows gs://bucket/s": "gs://bucket/s",
            "-m probes gs://bucket/run": "gs://bucket/run",
            "generate.py gs://bucket/run --prompt a": "gs://bucket/run",
            "-m data.prepare --out gs://bucket/data": "gs://bucket/data",
            f"{_TRAIN} start_from=gs://bucket/run@3": "gs://bucket/run",
            f"{_TRAIN} data.source=jsonl data.path=gs://bucket/x": "gs://bucket/x",
            f"{_TRAIN} data.tokenizer=gs://bucket/x": "gs://bucket/x",
            f"{_TRAIN} data.prepared_root=gs://bucket/data/": "gs://bucket/data",
        }.items()
    ),
    # What names no bucket, and what only a disk has.
    Row("train.py tiny --workdir gs://", "'gs://' names no bucket: write gs://BUCKET/FOLDER"),
    Row("evaluate.py gs://B/run", "'gs://B/run' names no bucket: write gs://BUCKET/FOLDER"),
    *(
        Row(
            command,
            f"{address} is in a bucket, and this reads and writes files of a disk only; use a "
            "folder of this machine, or one where the bucket is mounted",
        )
        for command, address in {
            "-m theory curve --base 10 --out gs://bucket/x.png": "gs://bucket/x.png",
            "-m experiment.keep run --out gs://bucket/kept": "gs://bucket/kept",
            "-m interop import gs://bucket/model new": "gs://bucket/model",
        }.items()
    ),
    Row(
        lambda: page_of([Path("run"), BucketPath("gs://bucket/run")]),
        "the directories lie on different disks; give --out FILE.html",
    ),
    Row(
        "train.py tiny --workdir gs://bucket/run train.profile_steps=[1,2]",
        "train.profile_steps writes files of a disk, and gs://bucket/run is in a bucket; leave it "
        "out, or use a --workdir of this machine",
        given=_a_bucket_that_takes_all,
    ),
    Row(
        _hold_what_another_trains_by_now,
        "gs://bucket/new is being trained by process 7 on elsewhere, which started later; this "
        "process ends, and its unsaved updates are lost",
        given=_a_bucket_that_takes_all,
    ),
    Row(
        "train.py tiny --workdir gs://bucket/run",
        "gs://bucket/run cannot be written to (Forbidden: nobody may); use another --workdir",
        given=_a_bucket_that_takes_nothing,
    ),
    # What is not there and what was not answered are two things.
    *(
        Row(
            command,
            f"{address}: the bucket did not do it (Forbidden: nobody may)",
            given=_a_bucket_that_says_nothing,
        )
        for command, address in {
            "train.py tiny --workdir gs://bucket/run": "gs://bucket/run/config.json",
            "sweep.py tiny --workdir gs://bucket/r seed=0,1": "gs://bucket/r/sweep.json",
            "evaluate.py gs://bucket/run": "gs://bucket/run/config.json",
            "report.py gs://bucket/run": "gs://bucket/run/config.json",
            "generate.py gs://bucket/run --prompt a": "gs://bucket/run/sweep.json",
            "-m studies status capability --rows gs://bucket/s": "gs://bucket/s/{}",
            f"{_TRAIN} data.tokenizer=gs://bucket/x": "gs://bucket/x",
        }.items()
    ),
    Row(
        lambda: read_items(RunDirectory("gs://bucket/run"), 3),
        "gs://bucket/run/checkpoints/3 could not be read (gs://bucket/run/checkpoints/3/data/"
        "metadata: the bucket did not do it (Forbidden: nobody may)); run the same command again",
        given=_a_bucket_that_takes_nothing,
    ),
]
