"""A run in a bucket is the run on a disk: the same rows, the same bits, whatever happens to it."""

import json
import random
import shlex
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from ropewalk.utils.errors import RESTART_STATUS
from tests.bucket.conftest import Commands
from tests.bucket.server import FakeBucket
from tests.data.helpers import plain_text, write_jsonl
from tests.tpu.page import BUCKET

pytestmark = pytest.mark.slow

STEPS = 12
GIVEN = (
    f"train.num_steps={STEPS}",
    "train.save_every=3",
    "train.log_every=1",
    "model.vocab_size=512",
    "data.vocab_size=500",
    "data.source=jsonl",
    "data.retrieval_fraction=0.5",
    "evals.tasks=[kv,perplexity]",
    "evals.documents=16",
)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    write_jsonl(path, [f"{i} {plain_text(i)} " * 20 for i in range(300)])
    return path


def of_step(folder, step: int) -> tuple[dict, dict]:
    """A checkpoint's record of the rows that were read, and the digests of its arrays."""
    data, digests = (
        json.loads((folder / "checkpoints" / str(step) / item / "metadata").read_bytes())
        for item in ("data", "digests")
    )
    return data, digests["arrays"]


class InBucket(NamedTuple):
    """A name in the fake bucket, read past everything that is tested."""

    bucket: FakeBucket
    name: str

    def __truediv__(self, name: str) -> "InBucket":
        return InBucket(self.bucket, f"{self.name}/{name}")

    def read_bytes(self) -> bytes:
        return self.bucket.read(self.name)


def metrics_of(folder) -> list[tuple]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_bytes().splitlines())
    return [(row["step"], row["loss"]) for row in rows]


@pytest.fixture(scope="module")
def on_disk(text, tmp_path_factory) -> Path:
    """The run that all others have to be."""
    folder = tmp_path_factory.mktemp("disk")
    cache = str(tmp_path_factory.getbasetemp() / "compiled")
    changes = (*GIVEN, f"data.path={text}", f"data.prepared_root={folder}/data")
    Commands(FakeBucket(), cache)("train.py", "tiny", "--workdir", str(folder / "run"), *changes)
    return folder / "run"


def train(text: Path) -> tuple[str, ...]:
    """The command of the run in the bucket; its text lies there, and its ids."""
    changes = ("data.path=gs://bucket/text.jsonl", "data.prepared_root=gs://bucket/data")
    return ("train.py", "tiny", "--workdir", "gs://bucket/run", *GIVEN, *changes)


@pytest.fixture(autouse=True)
def text_in_bucket(bucket, text):
    bucket.put("text.jsonl", text.read_bytes())


def assert_same(bucket, on_disk: Path, name: str = "run") -> None:
    run = InBucket(bucket, name)
    assert of_step(run, STEPS) == of_step(on_disk, STEPS)
    assert metrics_of(run) == metrics_of(on_disk)


@pytest.mark.long
def test_train_stop_resume_evaluate_report(bucket, run_it, text, on_disk):
    output = run_it.stopped(*train(text), after="step 4/")
    assert "To go on, run the same command again" in output
    assert "run/checkpoints/12/commit_success.txt" not in bucket.names()
    run_it(*train(text))
    assert_same(bucket, on_disk)
    # What is finished is found so, and nothing is written but the command.
    assert "finished already" in run_it(*train(text))

    run_it("evaluate.py", "gs://bucket/run", "--documents", "16")
    run_it("evaluate.py", str(on_disk), "--documents", "16")
    rows = InBucket(bucket, "run/results.jsonl").read_bytes()
    assert rows == (on_disk / "results.jsonl").read_bytes() and rows.count(b"\n") > 16
    assert "gs://bucket/run/report.html" in run_it("report.py", "gs://bucket/run")
    page = InBucket(bucket, "run/report.html").read_bytes()
    assert b"kv" in page and b"<svg" in page
    assert {"run/results.csv", "run/effective_context.png"} < {*bucket.names()}

    # Another run starts from it, and rows go elsewhere.
    child = ("train.py", "tiny", "--workdir", "gs://bucket/child", *train(text)[4:])
    run_it(*child, "start_from=gs://bucket/run@9", "train.num_steps=3")
    assert "child/checkpoints/3/commit_success.txt" in bucket.names()
    run_it("evaluate.py", "gs://bucket/run", "--tasks", "kv", "--out", "gs://bucket/rows")
    assert "rows/results.jsonl" in bucket.names()
    run_it("-m", "probes", "gs://bucket/run", "--documents", "8")
    assert "run/probes/inside.html" in bucket.names()
    # Not a byte of all this went to a folder called `gs:`.
    assert not (Path(__file__).parents[2] / "gs:").exists()


def test_a_bucket_that_may_not_be_written_to_is_refused_before_compute(bucket, run_it, text):
    bucket.forbidden = {"POST", "PUT", "DELETE"}
    message = run_it(*train(text), code=2).splitlines()[-1]
    assert "train.py: error: gs://bucket/data cannot be written to (Forbidden" in message
    assert "name another data.prepared_root" in message and bucket.names() == ["text.jsonl"]
    arguments = ("--workdir", "gs://another/run", "data.source=retrieval")
    message = run_it("train.py", "tiny", *arguments, code=2).splitlines()[-1]
    assert "gs://another/run cannot be written to" in message and "another --workdir" in message
    message = run_it("evaluate.py", "gs://bucket/none", code=2).splitlines()[-1]
    assert message == "evaluate.py: error: gs://bucket/none does not exist"


@pytest.mark.long
def test_a_bucket_that_is_gone_ends_the_run_which_then_goes_on(
    bucket, run_it, text, on_disk, tmp_path
):
    """In one line, with a status on which a JobSet makes another start."""
    # Rows from a disk: whoever reads them in a bucket tries for a quarter of an hour.
    command = (*train(text), f"data.prepared_root={tmp_path}")
    process, output = run_it.start_until(*command, after="step 4/")
    bucket.fail(one_in=1)
    output += process.communicate(timeout=300)[0]
    assert process.returncode == RESTART_STATUS, output
    last = output.splitlines()[-1]
    assert last.startswith("train.py: error: gs://bucket/run") and "Traceback" not in output
    assert "the bucket did not do it" in last
    bucket.fail(one_in=0)
    run_it(*command)
    assert_same(bucket, on_disk)


@pytest.mark.long
def test_of_two_trainers_the_later_one_goes_on(bucket, run_it, text, on_disk):
    process, output = run_it.start_until(*train(text), after="step 1/")
    bucket.put("run/.lock", b"process 7 on elsewhere\n")
    before = {name for name in bucket.names("run/") if name.endswith("commit_success.txt")}
    output += process.communicate(timeout=200)[0]
    assert process.returncode == 2, output
    assert "is being trained by process 7 on elsewhere, which started later" in output
    after = {name for name in bucket.names("run/") if name.endswith("commit_success.txt")}
    assert after - before <= {name for name in after if "/3/" in name}
    run_it(*train(text))
    assert_same(bucket, on_disk)


SMALL = (
    *("train.num_steps=3", "train.warmup_steps=1", "data.path=gs://BUCKET/text.jsonl"),
    *("model.vocab_size=512", "data.vocab_size=500", "model.embed_dim=32", "model.num_layers=1"),
    *("model.num_heads=2", "model.num_kv_heads=2", "model.head_dim=16", "model.mlp_dim=64"),
    *("data.context_length=64", "data.batch_size=4", "data.num_workers=0"),
    *("data.retrieval_tasks=[kv]", "evals.tasks=[kv]", "evals.documents=8"),
)


@pytest.mark.long
def test_what_the_documentation_does(bucket, run_it, text, tree):
    """Run the commands as they stand, on smaller models."""
    run_it.folder = tree
    for command in BUCKET:
        python, script, *arguments = shlex.split(command)
        assert python == "python"
        arguments += SMALL if script in ("train.py", "sweep.py") else ()
        run_it(script, *(word.replace("BUCKET", "bucket") for word in arguments))
    bases = [f"bases/base={base}" for base in ("1e2", "1e4", "1e6")]
    finished = {f"runs/{run}/checkpoints/3/commit_success.txt" for run in ("base_30m", *bases)}
    assert finished | {"runs/longer/checkpoints/3/commit_success.txt"} < {*bucket.names()}
    assert "runs/bases/report.html" in bucket.names()
    # Prepared text, and the digests of the files that it was made from.
    assert {path.name for path in (tree / "runs").iterdir()} == {"data", "data.content.json"}
    assert not (tree / "gs:").exists()


@pytest.mark.long
def test_killed_at_random_moments_it_ends_in_the_same_bits(bucket, run_it, text, on_disk):
    """Moments are counted in requests: so many are answered, and the process is gone."""
    draw, killed = random.Random(0), 0
    bucket.fail(one_in=200, seed=1)
    for _ in range(12):
        enough = bucket.counts.total() + draw.randrange(20, 500)
        process = run_it.start(*train(text))
        while bucket.counts.total() < enough and process.poll() is None:
            time.sleep(0.002)
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # However it stopped, what says that it is whole is whole.
        for name in bucket.names("run/checkpoints/"):
            step, _, mark = name.removeprefix("run/checkpoints/").partition("/")
            if mark == "commit_success.txt" and name in bucket.names():
                of_step(InBucket(bucket, "run"), int(step))
    bucket.fail(one_in=0)
    run_it(*train(text))
    assert killed >= 3
    assert_same(bucket, on_disk)
