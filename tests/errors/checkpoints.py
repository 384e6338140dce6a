"""Runs and checkpoints that are not what was saved; what else is done to them is in
`tests/training/test_damage.py`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from experiment import items
from experiment.run import RunDirectory
from tests.errors.table import Row

TRAIN = "train.py tiny --workdir run train.num_steps=2 train.save_every=1 evals.tasks=[kv]"
LOST = "copy checkpoints/2/config/metadata to config.json there, or delete run and start again"
NO_JSON = "run/config.json is damaged (no JSON object with a config); "
EDITED = (
    "run/config.json says model.rotary.base=30.0 but checkpoint 2 was made with 10000.0; "
    "copy checkpoints/2/config/metadata to config.json there"
)


def done(act: Callable[[], object]) -> Callable:
    """For `given`: what is done without a patch."""
    return lambda _: act()


def edited() -> None:
    path = Path("run/config.json")
    path.write_text(path.read_text().replace('"base": 10000.0', '"base": 30.0'))


def cut(*paths: str) -> None:
    for path in map(Path, paths):
        path.write_bytes(path.read_bytes()[:20])


def largest(folder: str) -> Path:
    return max(Path(folder).rglob("d/*"), key=lambda path: path.stat().st_size)


def rewrite(item: str, **changes: object) -> dict:
    """Changes fields of a JSON item of the newest checkpoint; returns what it was."""
    path = Path(f"run/checkpoints/2/{item}/metadata")
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, **changes}))
    return before


def another_digest() -> None:
    """Change the digest of one array, as if the array had changed after it was read whole."""
    record = rewrite("digests")
    del record["checksum"]
    name = next(name for name in record["arrays"] if name.startswith("params"))
    record["arrays"][name] = "0" * 16
    rewrite("digests", **record, checksum=items._sha256(record))


def of_later_code() -> None:
    """One without digests, with a field that this version does not know."""
    shutil.rmtree("run/checkpoints/2/digests")
    config = rewrite("config", has_digests=True)
    del config["has_digests"]
    Path("run/checkpoints/2/config/metadata").write_text(json.dumps(config))
    rewrite("data", more=1)


ROWS = [
    Row(
        "-m experiment.keep run run/../run --out kept",
        "two runs are called run; give each another --out",
        run=True,
    ),
    Row(
        "-m experiment.keep run --out .",
        "run is there already; delete it, or give another --out",
        run=True,
    ),
    Row("-m experiment.keep nowhere --out kept", "nowhere does not exist"),
    *(
        Row(command, f"run has checkpoints but no config.json; {LOST}", run=True, given=lost)
        for command in (TRAIN, "evaluate.py run", "report.py run")
        for lost in [done(lambda: Path("run/config.json").unlink())]
    ),
    *(
        Row(command, f"{NO_JSON}{LOST}", run=True, files={"run/config.json": content})
        for command in (TRAIN, "evaluate.py run", "report.py run")
        for content in ('{"overrides": [', "null", '{"config": 1}', b"\xff\xfe")
    ),
    Row(
        lambda: RunDirectory("run").config,
        f"{NO_JSON}delete run and start again",
        files={"run/config.json": "[" * 9999},
    ),
    Row("evaluate.py run", EDITED, run=True, given=done(edited)),
    Row(f"{TRAIN} model.rotary.base=30", EDITED, run=True, given=done(edited)),
    Row(
        "evaluate.py run",
        "run: checkpoint 2 is damaged (data: {}); take step 1, the newest whole one, or delete "
        "run/checkpoints/2",
        run=True,
        given=done(lambda: cut("run/checkpoints/2/data/metadata")),
    ),
    Row(
        "evaluate.py run --step=1",
        "run: checkpoint 1 is damaged (params: missing); take step 2, the newest whole one, or "
        "delete run/checkpoints/1",
        run=True,
        given=done(lambda: shutil.rmtree("run/checkpoints/1/params")),
    ),
    Row(
        "train.py tiny --workdir new start_from=run",
        "run: checkpoint 2 is damaged (params: missing); take step 1, the newest whole one, or "
        "delete run/checkpoints/2",
        run=True,
        given=done(lambda: shutil.rmtree("run/checkpoints/2/params")),
    ),
    Row(
        TRAIN,
        "run has no intact checkpoint (2: data: {}); delete run/checkpoints to train from the "
        "start",
        run=True,
        given=done(lambda: cut(*(f"run/checkpoints/{step}/data/metadata" for step in (1, 2)))),
    ),
    *(
        Row(
            "evaluate.py run",
            f"run: checkpoint 2 is damaged ({what}); take step 1, the newest whole one, or delete "
            "run/checkpoints/2",
            run=True,
            given=done(harm),
        )
        for harm, what in (
            (lambda: shutil.rmtree("run/checkpoints/2/digests"), "digests: missing"),
            (lambda: rewrite("digests", checksum="0"), "digests: not what was saved"),
            (lambda: rewrite("data", rows=7), "data: not what was saved"),
            (lambda: Path("run/checkpoints/2/data/metadata").write_text("[]"), "data: {}"),
            (another_digest, "params.{} is not what was saved"),
            (of_later_code, "data: DataState.__init__() got an unexpected keyword argument 'more'"),
            (lambda: cut(str(largest("run/checkpoints/2/params"))), "params.{} cannot be read"),
        )
    ),
]
