"""One line loads a run, and README's third use runs as it stands."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from ropewalk.data.sources import local
from ropewalk.evals import rows, runner
from ropewalk.experiment import load
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import transformer
from tests.data.helpers import plain_text, write_jsonl
from tests.models import tiny_config, train_run

# Slow: they train the runs that are loaded.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_data, trained_run) -> dict[str, RunDirectory]:
    """A plain run of tiny, and one whose second stage has a dynamic variant and longer rows."""
    second = (
        "model.rotary=dynamic_ntk_aware(base=100,original_context_length=64,log_n=train),"
        "data.context_length=96,train.num_steps=1,train.warmup_steps=0"
    )
    folder = tmp_path_factory.mktemp("runs")
    plain = RunDirectory(shutil.copytree(trained_run, folder / "plain"))
    config = tiny_config(*tiny_data, "train.num_steps=2", f"stages=[[{second}]]")
    return {"plain": plain, "staged": train_run(config, folder / "staged")}


def expected_logits(run: RunDirectory, step: int, ids: list[int]) -> jax.Array:
    """Layer by layer what `run.logits` promises, from the parts."""
    params, config, tokens = load(run.path, step=step).params, run.config_at(step), np.array([ids])
    table = config.model.position_table(config.data.context_length, len(ids))
    batch = tokens, np.arange(len(ids))[None], np.ones_like(tokens)
    hidden = transformer.hidden(config.model, params, table, *batch)
    return transformer.unembed(config.model, params, hidden)


def test_text_and_ids_give_the_models_logits(runs):
    run = load(runs["plain"].path)
    ids = [run.tokenizer.bos_id, *run.tokenizer.encode("import numpy as")]
    logits = run.logits("import numpy as")
    assert logits.dtype == np.float32 and logits.shape == (1, len(ids), 512)
    np.testing.assert_allclose(logits, expected_logits(runs["plain"], 2, ids), atol=1e-5)
    np.testing.assert_array_equal(run.logits(np.array([ids])), logits)


@pytest.mark.parametrize("length", [8, 192])
def test_the_trained_length_is_the_checkpoints_own(runs, length):
    """Stage 1 was trained at 96 tokens; rows longer than 64 are stretched."""
    ids = list(range(length))
    logits = load(runs["staged"].path).logits(np.array([ids]))
    np.testing.assert_allclose(logits, expected_logits(runs["staged"], 3, ids), atol=1e-5)


def test_a_damaged_tokenizer_is_refused_and_its_training_writes_it_again(runs):
    run, path = runs["plain"], runs["plain"].tokenizer_path
    content = path.read_bytes()
    path.write_bytes(content.replace(b"<key_3>", b"<key_3?", 1))
    with pytest.raises(
        ValueError, match=r"model: damaged: not the tokenizer that was written; del"
    ):
        _ = load(run.path).tokenizer
    path.unlink()
    train_run(run.config, run.path)
    assert path.read_bytes() == content


def on(prepared_root: str, run: RunDirectory, folder: Path) -> RunDirectory:
    """A copy of a run that looks for data there."""
    copy = RunDirectory(shutil.copytree(run.path, folder))
    record = json.loads((copy.path / "config.json").read_text())
    record["config"]["data"]["prepared_root"] = prepared_root
    (copy.path / "config.json").write_text(json.dumps(record))
    return copy


def ask(run: RunDirectory) -> rows.Rows:
    options = runner.Options(tasks=["perplexity"], documents=2, lengths=[32])
    [(_, _, table)] = runner.evaluate([run.path], options)
    return table


def test_a_run_is_asked_about_its_own_text_where_that_is_another(
    runs, tmp_path, tiny_data, monkeypatch
):
    # Another Python, whose library is another.
    files = [file for file in local.local_files() if file.name < "c"]
    monkeypatch.setattr(local, "local_files", lambda: files)
    plain, source = runs["plain"], tiny_data[0].partition("=")[2]
    expected = ask(on(source, plain, tmp_path / "here"))
    away = on(str(tmp_path / "data"), plain, tmp_path / "away")
    table = ask(away)
    for name in rows.SCHEMA:
        if name != "run":
            np.testing.assert_array_equal(table[name], expected[name], err_msg=name)
    assert not (tmp_path / "data").exists()


def test_held_out_text_that_changed_is_refused(tmp_path, runs):
    def write(name, numbers):
        write_jsonl(tmp_path / "in" / name, [plain_text(number) for number in numbers])

    write("train.jsonl", range(9))
    write("valid.jsonl", range(9, 12))
    config = tiny_config(
        *("data.source=jsonl", f"data.path={tmp_path / 'in'}", "data.retrieval_fraction=0"),
        *(f"data.tokenizer={runs['plain'].tokenizer_path}", "train.num_steps=2"),
        f"data.prepared_root={tmp_path / 'data'}",
    )
    run = train_run(config, tmp_path / "run")
    write("valid.jsonl", range(3))  # training has read them
    with pytest.raises(ValueError, match=r"trained on other data \(fingerprint .*; restore"):
        train_run(config, run.path)
    with pytest.raises(ValueError, match=r"held-out text of the training, and .*/in has"):
        ask(run)
    write("valid.jsonl", range(9, 12))
    write("train.jsonl", range(5))
    shutil.rmtree(run.checkpoints_path)  # as if it was stopped before the first one
    with pytest.raises(ValueError, match=r"trained on other data \(.* content of .*/in, .* or use"):
        train_run(config, run.path)
