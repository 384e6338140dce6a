"""Synthetic runs and rows for tests of the report."""

import json

from ropewalk.configs.changes import change
from ropewalk.data.config import DataConfig
from ropewalk.evals import rows as rows_lib
from ropewalk.experiment.config import ExperimentConfig, TrainConfig, config_digest
from ropewalk.experiment.identity import run_id
from ropewalk.experiment.items import digest_item
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.model import rotary
from ropewalk.reporting import members as members_lib
from tests.models import small_model

LENGTH = 128
QUESTION = "Does <b>1 < 2</b> & how far?"


def experiment(variant, *, seed=0, window=None, length=LENGTH, **changes) -> ExperimentConfig:
    """Return a config with `configs.changes.change`."""
    config = ExperimentConfig(
        name="tiny",
        question=QUESTION,
        seed=seed,
        model=small_model(
            embed_dim=64, num_layers=2, head_dim=64, mlp_dim=64, rotary=variant,
            window=window,
        ),
        data=DataConfig(context_length=length, batch_size=8, vocab_size=64),
        train=TrainConfig(num_steps=10, learning_rate=1e-3),
    )  # fmt: skip
    return change(config, **changes)


def row(config, task="kv", **columns) -> dict:
    """Return a correct answer under the trained variant at the trained length."""
    defaults = {
        "task": task, "split": "validation", "run": "run",
        "run_id": f"{config_digest(config, None)}-{config.data.path}", "step": 10,
        "seed": config.seed, "rotary": rotary.expression(config.model.rotary),
        "base": getattr(config.model.rotary, "base", float("nan")),
        "trained_length": config.data.context_length, "length": config.data.context_length,
        "distance": 1, "document": 0, "query": 0, "num_tokens": 1, "exact_match": True,
        "first_token_correct": True, "nll": 2.0, "rank": 0, "chance": 1 / 64, "num_bytes": 0,
        "num_words": 0,
    }  # fmt: skip
    assert columns.keys() <= defaults.keys()
    return defaults | columns


def answers(config, reach, *, task="kv", variant=None, step=10, documents=16, length=None):
    """Return answers at every distance below the length; correct iff below `reach`."""
    length = length or config.data.context_length
    common = row(config, task, step=step, length=length, **({"rotary": variant} if variant else {}))
    return [
        common
        | dict(distance=distance, document=document, query=distance)
        | dict.fromkeys(("exact_match", "first_token_correct"), distance < reach)
        for document in range(documents)
        for distance in range(1, length)
    ]


def make_run(path, config, rows=(), *, overrides=(), digest=7):
    run = RunDirectory(path)
    run.write_config(config, overrides)
    state = {"fingerprint": "f00d", "rows": 80, "digest": digest}
    items = {"data": state, "config": {}}
    # The path of the text alone distinguishes runs with equal configs.
    items["digests"] = digest_item({"params.embedding": str(config.data.path)}, items)
    for name, item in items.items():
        folder = run.checkpoints_path / "10" / name
        folder.mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps(item))
    metrics = [{"step": s, "tokens": s * 1000, "loss": 5.0 - s / 10} for s in range(1, 11)]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in metrics))
    rows = rows_of(run, rows)
    if rows:
        rows_lib.write(run.results_path, rows_lib.columns(list(rows)))
    return run


def rows_of(run, rows):
    """Return rows with the identity of the run's checkpoint, unless they are of another config."""
    digest, identity = run.config_digest, run_id(run, 10)
    return [
        {**row, "run_id": identity} if row["run_id"].startswith(digest) else row for row in rows
    ]


def diverge(run, *, since):
    """Record that every update of a run of 10 steps was skipped from `since` on."""
    metrics = [{**row, "skipped": max(0, row["step"] - since + 1)} for row in run.read_metrics()]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in metrics))


def make_sweep(path, members, overrides=("model.rotary.base=10,30,100,1e4",)):
    path.mkdir(parents=True, exist_ok=True)
    record = {"members": members, "overrides": list(overrides), "config": "tiny"}
    (path / "sweep.json").write_text(json.dumps(record))
    return path


def read(*paths):
    """Return the members of run or sweep directories."""
    return members_lib.read(find_runs(paths))
