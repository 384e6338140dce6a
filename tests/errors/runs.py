"""Runs and sweeps that cannot be trained, gone on with, started from or read."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
from jax.experimental import multihost_utils

import configs
from configs import find_config
from data import pipeline
from data import tokenizer as tokenizer_lib
from data.prepare import prepare
from data.store import TokenStore
from evals import score
from experiment import distributed, hosts, load, overrides
from experiment.run import RunDirectory
from studies import work
from studies.card import Card, Member
from studies.jobs import card_runs
from tests.errors.data import untokenized
from tests.errors.table import Row
from tests.errors.texts import TEXTS, config, lines
from tpu import aot, topology
from training import loop
from training.divergence import DivergedError
from training.plan import make_plan
from utils.files import write_checksummed

TINY = find_config("tiny")
AGAIN = "train.py tiny --workdir run train.num_steps=2 train.save_every=1 evals.tasks=[kv]"
SWEEP = {"sweep.json": '{"config": "tiny", "overrides": [], "members": ["a", "b"]}'}

WRONG_KIND = """
import dataclasses
from model.rotary.rope import Rope

@dataclasses.dataclass(frozen=True, kw_only=True)
class Bent(Rope):
    bend: object = 0

    def __post_init__(self):
        super().__post_init__()
        self.bend < 1
"""


class Other(TokenStore):
    """The token store of another text."""

    def __init__(self, path):
        super().__init__(path)
        self.fingerprint = "other"


def elsewhere(patch):
    """The text is not the one that the run was trained on."""
    patch.setattr(pipeline, "TokenStore", Other)


def missing(patch):
    """Other processes that do not come."""

    def initialize(*arguments):
        raise RuntimeError("DEADLINE_EXCEEDED: barrier timed out\nand more")

    patch.setattr(jax.distributed, "initialize", initialize)


def second_of_two(patch):
    """This process, as the second of two of which the other one refuses."""
    patch.setattr(jax, "process_count", lambda: 2)
    patch.setattr(multihost_utils, "process_allgather", lambda row: np.stack([0 * row, row]))


def blind_second(patch):
    """This process, as the first of two alike, of which the other one has another disk."""

    def gathered(row):
        return np.stack([row, 0 * row if row.size == 1 else row])

    patch.setattr(jax, "process_count", lambda: 2)
    patch.setattr(distributed, "broadcast_from_primary", lambda value: value)
    patch.setattr(distributed, "sum_over_hosts", lambda value: 2 * value)
    patch.setattr(multihost_utils, "process_allgather", gathered)


def refused_by_one():
    """Raise an error in one process."""
    with distributed.refusing_together():
        raise ValueError("no disk here")


def diverging(patch):
    """Training that comes to nothing."""

    def train(plan, **_):
        raise DivergedError("it diverged")

    patch.setattr(loop, "train", train)


def without_libtpu(patch):
    """Fail as JAX does where there is no libtpu."""

    def describe(*_, **__):
        raise RuntimeError("Unable to find libtpu.so\nand more")

    patch.setattr(os, "environ", dict(os.environ))
    patch.setattr(aot.topologies, "get_topology_desc", describe)


def refused_compile(patch):
    """A row of docs/scaling.md that libtpu does not take."""
    ended = subprocess.CompletedProcess(
        [], 2, stdout="", stderr="of it:\ntpu.aot: error: a chip has 16 GiB\n"
    )
    patch.setattr(subprocess, "run", lambda *_, **__: ended)


def diverged(patch):
    """A run of a study that is trained, and comes to nothing."""
    patch.setattr(work, "_train", lambda *_, **__: True)
    patch.setattr(RunDirectory, "diverged_at", 3)


def measured_card():
    """Train and measure a card without a budget."""
    card = Card(name="one", question="?", shared=TINY, members=(Member(name="ten"),))
    return work.train_budget(card_runs(card, 0), 0, Path("work"), [[]])


def damaged_after(change):
    """Prepares a folder, changes one file of it, and finds it again."""
    folder = prepare(config(), show_progress=False)
    change(folder)
    return prepare(config(), show_progress=False)


def flipped(folder):
    """A bit of a shard changes."""
    (path,) = (folder / "train").glob("*.array_record")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))


def another_tokenizer(folder):
    """Half a folder, and a tokenizer that is not of its shards."""
    (folder / "prepare.json").unlink()
    write_checksummed(folder / "progress.json", {"tokenizer": "other"})


def planned(*changes: str):
    """A plan of members that are made to train together."""
    members = [overrides.apply(TINY, [change]) for change in changes]
    runs = [RunDirectory(f"run{number}") for number in range(len(members))]
    return make_plan(members, runs, overrides=[[] for _ in members])


ROWS = [
    Row(
        "train.py tiny --workdir new --process-id 1",
        "--coordinator, --num-processes and --process-id go together",
    ),
    Row(
        "train.py tiny --workdir new --coordinator here:1 --num-processes 2 --process-id 2",
        "--process-id=2 must lie in 0 ... 1",
    ),
    Row(
        "train.py tiny --workdir new",
        "the other processes of this run were not found (DEADLINE_EXCEEDED: barrier timed out)",
        given=missing,
    ),
    Row(refused_by_one, "process 1: no disk here", given=second_of_two),
    Row(
        "-m tpu.jobset capability --mode study --workdir /runs/c --topology v5p:4x4x4 --image i",
        "--mode study is one process a job, and v5p:4x4x4 has 16 hosts; use v5p:2x2x1",
    ),
    Row(
        "-m tpu.jobset tiny --workdir runs/a --topology v5e:2x2 --image i seed=0,1",
        "--workdir runs/a would lie on the pods' own disks and end with them; use /runs/DIR or "
        "gs://BUCKET/DIR",
    ),
    Row(
        "-m tpu.jobset tiny --workdir s3://b/a --topology v5e:2x2 --image i seed=0,1",
        "s3://b/a cannot be read or written: of addresses, gs:// alone can; use that, a folder of "
        "this machine, or one where the bucket is mounted",
    ),
    Row(
        lambda: hosts.check_alike("new", TINY),
        "process 1 has code other than process 0; put the same commit on every host",
        given=second_of_two,
    ),
    Row(
        lambda: hosts.check_alike("new", TINY),
        "process 1 does not see the new of process 0; use a --workdir on a disk that all hosts see",
        given=blind_second,
    ),
    Row(
        "train.py tiny --workdir new[1]",
        "new[1]: orbax takes [] in a path for a pattern and would not find its "
        "checkpoints; use another directory",
    ),
    Row(
        "train.py tiny --workdir run train.num_steps=2 seed=3",
        "run holds a run with seed=0, and this one has seed=3; use another "
        "--workdir, or delete that directory",
        run=True,
    ),
    Row(
        AGAIN,
        "run was trained on other data (fingerprint {}, now other); restore the source or use a "
        "new --workdir",
        run=True,
        given=elsewhere,
    ),
    Row(
        "train.py tiny --workdir new stages=[[model.mlp_dim=32]]",
        "stage 1: parameter blocks.mlp.down is (2, 32, 32) but (2, 64, 32) in stage "
        "0; stages share one set of parameters",
    ),
    Row(
        lambda: planned("data.seed=1", "data.seed=2"),
        "stage 0: members that train together read the same rows, and these differ "
        "in data; give data.seed, or train them apart",
    ),
    Row(
        "train.py tiny --workdir new start_from=run data.tokenizer=other.model",
        "stage 0 has another tokenizer than start_from=run@2; use "
        "data.tokenizer=run/tokenizer.model",
        run=True,
        given=lambda _: tokenizer_lib.train(TEXTS, Path("other.model"), 512),
    ),
    Row(
        "train.py tiny --workdir new start_from=run model.mlp_dim=32",
        "start_from=run@2: its parameter blocks.mlp.down is (2, 64, 32) but (2, 32, "
        "32) in this config's model; set model.mlp_dim=64",
        run=True,
    ),
    *(
        Row(f"{program} --check {wrong}", says)
        for program in ("train.py tiny --workdir new", "sweep.py tiny --workdir new seed=0,1")
        for wrong, says in (
            ("data.source=jsonl data.path=nowhere", "nowhere: no such file or folder"),
            ("data.path=nowhere", "data.path=nowhere: no such file or folder"),
            ("start_from=nowhere", "nowhere does not exist"),
            ("mesh.data=3 --devices 8", "mesh {} does not cover the 8 devices; use mesh.data={}"),
            ("mesh.data=3", "mesh {} does not cover the {} devices; use mesh.data={}"),
            ("data.tokenizer=nowhere", "nowhere: no tokenizer there (No such file or directory)"),
        )
    ),
    Row(
        "train.py tiny --check --workdir new start_from=run model.mlp_dim=32",
        "start_from=run@2: its parameter blocks.mlp.down is (2, 64, 32) but (2, 32, 32) in this "
        "config's model; set model.mlp_dim=64",
        run=True,
    ),
    Row(
        lambda: planned("model.norm_epsilon=1e-6", "model.norm_epsilon=1e-5"),
        "stage 0: members that train together share one program, and these differ in more of their "
        "models than rotary and window; train them apart",
    ),
    Row(
        "sweep.py tiny --workdir new seed=0,1 --member 7",
        "no member 7: the sweep has members 0 to 1",
    ),
    Row(
        "sweep.py tiny --workdir new seed=0,0",
        "two members are called seed=0: every listed value must be different",
    ),
    Row(
        "sweep.py tiny --workdir new start_from=run data.seed=0 seed=0,1",
        "seed=0 and seed=1 would be the same run: with start_from no parameter "
        "depends on seed; leave data.seed to it, or list values of data.seed",
        run=True,
    ),
    Row(
        "sweep.py tiny --workdir new model.rotary.base=10,100",
        "all members diverged: no member of new finished",
        given=diverging,
        code=1,
    ),
    Row(
        "train.py tiny --workdir .",
        ". holds a sweep; use another --workdir, or sweep.py to continue it",
        files=SWEEP,
        given=untokenized,
    ),
    Row(
        "sweep.py tiny --workdir run seed=0,1",
        "run holds a run; use another --workdir, or train.py to continue it",
        run=True,
        given=untokenized,
    ),
    Row(
        "evaluate.py run",
        "run holds both a run and a sweep; move sweep.json and the members that it names to "
        "another directory",
        run=True,
        files={"run/sweep.json": SWEEP["sweep.json"]},
    ),
    Row(
        "evaluate.py .",
        "./sweep.json names the member a, which is not there; run the same sweep.py "
        "command again to make it",
        files=SWEEP,
    ),
    Row(lambda: load("."), ". is a sweep; name one of its members: a, b", files=SWEEP),
    Row(
        lambda: load("run").logits(np.zeros(3, np.int32)),
        "tokens must be a text or whole numbers [B, T], not int32 of shape (3,)",
        run=True,
    ),
    Row(
        lambda: load("run").logits(np.zeros((1, 3))),
        "tokens must be a text or whole numbers [B, T], not float64 of shape (1, 3)",
        run=True,
    ),
    Row(
        lambda: load("run").logits(np.array([[0, 512]])),
        "ids 0 ... 512 do not all lie in 0 ... 511",
        run=True,
    ),
    Row(
        lambda: RunDirectory("run").config,
        "run/config.json: config names the class 'os.system', which is not one of "
        "this repository's",
        files={"run/config.json": '{"config": {"class": "os.system"}}'},
    ),
    Row(
        "evaluate.py run",
        "run: checkpoint 2 is damaged (data: not a JSON object); take step 1, the "
        "newest whole one, or delete run/checkpoints/2",
        run=True,
        files={"run/checkpoints/2/data/metadata": "[]"},
    ),
    Row(
        "evaluate.py run --tasks \"lines(template=official,cases='none.jsonl')\"",
        "lines(template=official,cases='none.jsonl') has no documents at length 64",
        run=True,
        files={"none.jsonl": ""},
    ),
    Row(
        lambda: score._check_memory(
            SimpleNamespace(
                memory_analysis=lambda: SimpleNamespace(
                    argument_size_in_bytes=0, temp_size_in_bytes=2**33, output_size_in_bytes=0
                )
            ),
            1,
            4096,
        ),
        "length 4096 does not fit: one row needs 8.0 GiB and 2.0 GiB are free; try --lengths 1024",
        given=lambda patch: patch.setattr(score, "free_device_memory", lambda: 2**31),
    ),
    Row("report.py run --out .", "--out . is a folder; write --out report.html", run=True),
    Row(
        "train.py tiny --workdir new train.num_steps=" + "9" * 9999,
        "train.num_steps=999999999999999999999999999999999 ... "
        "9999999999999999999999 must be a whole number, got "
        "'99999999999999999999999999999999 ... 999999999999999999999'",
    ),
    Row(
        "train.py tiny --workdir new 'model.rotary=mine.py:Bent(base=10,bend=a)'",
        "model.rotary: 'Bent(base=10,bend=a)': a value of the wrong kind among base=10, bend='a'",
        files={"mine.py": WRONG_KIND},
    ),
    Row(
        lambda: configs.load_configs(),
        "configs.tiny: a config named tiny exists already",
        given=lambda patch: patch.setattr(
            configs.pkgutil, "walk_packages", lambda *_: 2 * [SimpleNamespace(name="configs.tiny")]
        ),
    ),
    Row(
        lambda: damaged_after(flipped),
        "out/jsonl-{}/train/00000.array_record: damaged: {}; delete out/jsonl-{}, and it is "
        "prepared anew",
        files={"in/a.jsonl": lines(*TEXTS)},
    ),
    Row(
        lambda: damaged_after(another_tokenizer),
        "out/jsonl-{}/tokenizer.model: damaged: not the tokenizer that was written; {}",
        files={"in/a.jsonl": lines(*TEXTS)},
    ),
    *(
        Row(
            f"-m benchmarks {name}",
            f"{name} needs torch: run `make test-hf` once, or pip install "
            "torch==2.13.0 transformers==5.23.0 (a CPU build of torch will do)",
            given=lambda patch: patch.setitem(sys.modules, "torch", None),
        )
        for name in ("peer", "decode")
    ),
    Row(
        "-m benchmarks viewer",
        "viewer needs playwright: run `make test-browser` once, then this with "
        "PYTHONPATH=.venv-browser",
        given=lambda patch: patch.setitem(sys.modules, "playwright", None),
    ),
    Row(
        "-m tpu.topology v5e:9x9",
        "unknown topology 'v5e:9x9'; nearest: v5e:8x8 (64 chips, Google's v5litepod-64)",
    ),
    Row(
        lambda: aot.compile_devices(topology.find("v5e:1x1")),
        "libtpu cannot be loaded (Unable to find libtpu.so); pip install '.[tpu]' in the folder of "
        "ropewalk, in an environment of its own",
        given=without_libtpu,
    ),
    Row(
        "-m tpu.tables --only figure6_llama2_7b",
        "a chip has 16 GiB",
        given=refused_compile,
    ),
    Row(
        measured_card,
        "work/{} diverged at step 3 and cannot be measured; give the member a lower "
        "train.learning_rate",
        given=diverged,
    ),
    Row(
        "train.py tiny --workdir new model.rotary=" + "x" * 100_001,
        "model.rotary: rotary variant 'xxx{}xxx' is not of the form name(parameter=value,...){}",
    ),
    Row(
        "train.py tiny --workdir new mesh.fsdp=3",
        "mesh {} does not cover the 1 devices; use mesh.{}=1, or leave one axis at -1 to take the "
        "rest",
    ),
]
