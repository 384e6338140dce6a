"""Small files of runs and sweeps that are broken, hostile, or another's: named, with what to do."""

import json
from pathlib import Path

from configs import find_config
from evals import rows
from experiment.config import from_dict
from experiment.identity import config_digest
from experiment.metrics import MetricsLog
from experiment.run import RunDirectory
from tests.errors.table import Row
from tests.evals.test_rows import ROW as ANSWER

SWEEP = {"config": "tiny", "overrides": ["model.rotary.base=10,30"], "members": ["base=10"]}
SWEEP_KEPT = "; delete it and run the same sweep.py command again: members are kept"
DEEP = "[" * 100_000

SWEEPS = (
    ("[]", "no JSON object with config, overrides, members"),
    ("null", "no JSON object with config, overrides, members"),
    ("{}", "no JSON object with config, overrides, members"),
    *(
        (json.dumps({**SWEEP, "members": members}), message)
        for members, message in (
            ([1], "members must be a string, got 1"),
            ("base=10", "members must be a tuple, got 'base=10'"),
            ([], "members must be different names, got ()"),
            (["a", "a"], "members must be different names, got ('a', 'a')"),
            *(
                ([name], f"members must be names of directories in it, got {name!r}")
                for name in ("../ref", "/tmp", "a/b", "..", ".", "", "a\nb")
            ),
            (["\ud800"], "members must be names of directories in it, got '\\ud800'"),
            (["x" * 256], "members must be names of directories in it, got 'xx{} ... {}xx'"),
        )
    ),
    (json.dumps({**SWEEP, "overrides": [3]}), "overrides must be a string, got 3"),
    (json.dumps({**SWEEP, "config": None}), "config must be a string, got None"),
)
NO_JSON = (
    ('{"config":', "not JSON (Expecting value)"),
    (b"\xff\xfe", "not JSON (bytes that are no UTF-8)"),
    (DEEP, "not JSON (maximum recursion depth exceeded {})"),
    ("9" * 5000, "not JSON (Exceeds the limit {})"),
)
METRIC = '{"step": 1, "tokens": 64, "loss": 5.0}\n'
METRICS = (
    ("[1]", "a row is a JSON object, got [1]"),
    ('{"tokens": 64, "loss": 5.0}', "lacks 'step'"),
    ('{"step": 2, "loss": 5.0}', "lacks 'tokens'"),
    ('{"step": 2, "tokens": 64}', "lacks 'loss'"),
    ('{"step": "2", "tokens": 64, "loss": 5.0}', "step must be a whole number, got '2'"),
    (
        '{"step": 1e300, "tokens": 64, "loss": 5.0}',
        "step must be a whole number of 64 bits, got 1e+300",
    ),
    (
        '{"step": 2, "tokens": 64, "loss": 1e308}',
        "loss must be a finite number in [-3.4e+38, 3.4e+38], got 1e+308",
    ),
    (
        '{"step": 2, "tokens": 64, "loss": NaN}',
        "loss must be a finite number in [-3.4e+38, 3.4e+38], got nan",
    ),
    *NO_JSON,
)
ANSWERS = (
    *((content, f"{message}; delete the file and evaluate again") for content, message in NO_JSON),
    ("[1]", "a result row must be a JSON object, got [1]"),
    (json.dumps(ANSWER | {"distance": "17"}), "distance must be int, got '17'"),
    (json.dumps(ANSWER | {"step": 2**64}), f"step must be a whole number of 64 bits, got {2**64}"),
    (
        json.dumps(ANSWER | {"nll": 0.5}).replace("0.5", "1e400"),
        "nll must be a finite number, got inf",
    ),
)


def as_bytes(content: str | bytes) -> bytes:
    """The content of a file in bytes."""
    return content.encode() if isinstance(content, str) else content


def write_config(change: dict) -> None:
    """Makes a run with a config.json in which a field is another."""
    RunDirectory("run").write_config(find_config("tiny"), [])
    path = Path("run/config.json")
    record = json.loads(path.read_text())
    (record if "overrides" in change else record["config"]).update(change)
    path.write_text(json.dumps(record))


def read_rows(content: str | bytes):
    """Reads a results.jsonl of one good row and then `content`."""

    def read():
        path = Path("results.jsonl")
        path.write_bytes(json.dumps(ANSWER).encode() + b"\n" + as_bytes(content) + b"\n")
        rows.read(path)

    return read


def read_metrics(content: str | bytes):
    """Reads a metrics.jsonl of one good row, then `content`, then another good one."""

    def read():
        run = RunDirectory("run")
        run.path.mkdir()
        run.metrics_path.write_bytes(METRIC.encode() + as_bytes(content) + b"\n" + METRIC.encode())
        run.read_metrics()

    return read


ROWS = [
    *(
        Row(
            "report.py sweep",
            f"sweep/sweep.json: {message}{SWEEP_KEPT}",
            files={"sweep/sweep.json": content},
        )
        for content, message in (*SWEEPS, *NO_JSON)
    ),
    Row(
        "sweep.py tiny --workdir sweep seed=0,1",
        f"sweep/sweep.json: no JSON object with config, overrides, members{SWEEP_KEPT}",
        files={"sweep/sweep.json": "[]"},
    ),
    *(
        Row(
            "report.py run",
            f"run/config.json{message}",
            given=lambda _, change=change: write_config(change),
        )
        for change, message in (
            ({"overrides": 7}, " is damaged (no JSON object with a config); {}"),
            ({"overrides": [7]}, " is damaged (no JSON object with a config); {}"),
            ({"model": []}, ": model must be an object of ModelConfig, got ()"),
            ({"evals": None}, ": evals must be an object of EvalConfig, got None"),
        )
    ),
    *(
        Row(
            "report.py run --out new/report.html",
            f"run/results.jsonl{message}",
            files={"run/results.jsonl": json.dumps(ANSWER | row) + "\n"},
            given=lambda _: RunDirectory("run").write_config(find_config("tiny"), []),
        )
        for row, message in (
            (
                {"task": "kvv", "run_id": f"{config_digest(find_config('tiny'), None)}-"},
                ": unknown task 'kvv'; did you mean 'kv'? (valid: {})",
            ),
            (
                {},
                " holds rows of another run ('base=10': another config or seed); restore the run's "
                "own file, or delete it and evaluate again",
            ),
        )
    ),
    *(
        Row(lambda path=path: from_dict({"class": path}), f"config names {message}")
        for path, message in (
            (
                "model.rotary.bent.Bent",
                "the class 'model.rotary.bent.Bent', and there is no model/rotary/bent.py here; "
                "put the file back, or use the version of ropewalk that the run was made with",
            ),
            (
                "model.rotary.rope.Bent",
                "the class 'model.rotary.rope.Bent', which model/rotary/rope.py has not; {}",
            ),
            ("os.path.join", "the class 'os.path.join', which is not one of this repository's"),
            (7, "the class '7', which is not one of this repository's"),
            ("model.rotary.rope.np", "'model.rotary.rope.np', which is not a config class"),
        )
    ),
    *(
        Row(read_metrics(content), f"run/metrics.jsonl:2: {message}; delete that line")
        for content, message in METRICS
    ),
    Row(
        lambda: MetricsLog(RunDirectory("run"), find_config("tiny"), after_step=1, notice=print),
        "run/metrics.jsonl:1: a row is a JSON object, got [1]; delete that line",
        files={"run/metrics.jsonl": "[1]\n"},
    ),
    Row(
        lambda: RunDirectory("run").read_commands(),
        "run/commands.jsonl:1: command must be a string, got 1; delete that line",
        files={"run/commands.jsonl": '{"command": 1}\n'},
    ),
    *(Row(read_rows(content), f"results.jsonl:2: {message}") for content, message in ANSWERS),
    Row(
        "sweep.py tiny --workdir sweep seed=0,1 train.num_steps=20",
        "sweep holds another sweep, with train.num_steps=10, and this one has train.num_steps=20 "
        "in its place; use another --workdir, or delete that directory",
        files={
            "sweep/sweep.json": json.dumps(
                {
                    "config": "tiny",
                    "overrides": ["seed=0,1", "train.num_steps=10"],
                    "members": ["seed=0", "seed=1"],
                }
            )
        },
    ),
]
