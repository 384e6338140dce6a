"""A day on a machine that preempts: own text, dashboards and four kills leave what none leave."""

import importlib
import signal

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ropewalk.experiment.run import RunDirectory
from tests.data.helpers import plain_text, write_jsonl
from tests.in_process import call
from tests.training.helpers import SPLIT, Processes, assert_same_run

pytestmark = pytest.mark.tracking

SIZES = (
    *SPLIT,
    "model.num_layers=1",
    "model.vocab_size=640",
    "model.num_heads=4",
    "model.num_kv_heads=4",
    "model.head_dim=32",
    "data.vocab_size=600",
)
SIZES += ("data.context_length=64", "data.batch_size=8", "train.warmup_steps=2")
STEPS = ("train.num_steps=80", "train.save_every=16", "train.eval_every=40", "train.log_every=1")
MEMBERS = ("base=10", "base=1e4")


@pytest.fixture
def text(tmp_path):
    """120 documents in files of several kinds, beside an empty part and one that is no document."""
    texts, folder = [plain_text(i) for i in range(120)], tmp_path / "text"
    (folder / "notes").mkdir(parents=True)
    for number, content in enumerate(texts[:40]):
        (folder / "notes" / f"{number}.txt").write_text(content)
    write_jsonl(folder / "part-1.jsonl", texts[40:80])
    (folder / "part-2.jsonl").touch()
    pq.write_table(pa.table({"text": texts[80:]}), folder / "c.parquet")
    (folder / "README.md").write_text("About the text.")
    return folder


def test_kills_change_no_bit_and_no_row(text, tmp_path, environment, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
        environment = {key: value for key, value in environment.items() if key != name}
    command = ["sweep.py", "own_text", f"data.path={text}", *SIZES, *STEPS]
    command += [f"data.prepared_root={tmp_path / 'data'}", "model.rotary.base=10,1e4"]
    command += ["train.tracking=wandb,tensorboard", "evals.documents=4", "--workdir"]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"

    def start(workdir, *more):
        return Processes(tmp_path / "logs", 1, environment, *command, workdir, *more)

    assert "part-2.jsonl" in call(*command, killed, "--check")
    for kind, status in (("worker", 42), ("TERM", 130), ("KILL", -9), ("HUP", 130)):
        started = start(killed, "data.num_workers=1")
        (process,) = started.running
        member = killed / MEMBERS[0]
        started.wait_for_rows(member, 4 + len(RunDirectory(member).read_metrics()))
        number = signal.SIGKILL if kind == "worker" else signal.Signals[f"SIG{kind}"]
        children = psutil.Process(process.pid).children(recursive=True)
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        (workers[0] if kind == "worker" else process).send_signal(number)
        assert started.exit_statuses(120) == [status], started.said()
        assert psutil.wait_procs(workers, 60)[1] == []  # none outlives its parent
        (output,) = started.said()
        texts = {"worker": "a data worker was killed", "KILL": ""}
        assert texts.get(kind, f"by SIG{kind} at step") in output.splitlines()[-1]
        assert "Traceback" not in output
    for workdir in (killed, undisturbed):
        started = start(workdir)
        assert started.exit_statuses(300) == [0], started.said()
        for line in (f"evaluate.py {workdir}", f"report.py {workdir}"):
            call(*line.split())
    for name in MEMBERS:
        assert_same_run(undisturbed / name, killed / name)
        results = [RunDirectory(folder / name).results_path for folder in (undisturbed, killed)]
        assert results[0].read_bytes() == results[1].read_bytes()
        check_dashboards(RunDirectory(killed / name), 80)
    call("generate.py", killed / name, "--prompt", "Document", "--max-new-tokens", "4")
    weights = []
    for folder in (undisturbed, killed):
        call("export", folder / name, folder / "exported")
        weights.append((folder / "exported" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def check_dashboards(run, num_steps):
    """TensorBoard has each step once; W&B resumed one page."""
    module = "tensorboard.backend.event_processing.event_accumulator"
    reader = importlib.import_module(module).EventAccumulator(str(run.path / "tensorboard"))
    reader.Reload()
    assert [event.step for event in reader.Scalars("loss")] == list(range(1, num_steps + 1))
    importlib.import_module("wandb").teardown()
    pages = {path.name.rpartition("-")[2] for path in run.path.glob("wandb/offline-run-*")}
    assert len(pages) == 1
