import dataclasses
import json

import numpy as np
import pytest

from ropewalk import evaluate as cli
from ropewalk.configs.changes import change
from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data.config import DataConfig
from ropewalk.data.task import Document
from ropewalk.evals import rows, runner, spread, text
from ropewalk.evals import score as score_lib
from ropewalk.evals.estimate import effective_context
from ropewalk.experiment.checkpoint import leaves_by_name, write_params
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.experiment.run import find_runs
from ropewalk.model import transformer
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.rope import Rope
from tests.evals.oracles import copying_model
from tests.models import small_model, write_run

pytestmark = pytest.mark.slow

CONFIG = ExperimentConfig(
    name="test",
    question="?",
    model=small_model(vocab_size=640, head_dim=128, rotary=Rope(base=10000.0)),
    data=DataConfig(
        source="retrieval",
        vocab_size=640,
        context_length=96,
        batch_size=1,
        retrieval_tasks=("kv",),
    ),
    train=TrainConfig(num_steps=4, learning_rate=1e-3),
    evals=EvalConfig(tasks=("kv", "perplexity"), documents=3),
)


def evaluate(paths, **options):
    return runner.evaluate(paths, runner.Options(**options))


MEMBERS = {
    "base=10": change(CONFIG, model=dict(rotary=Rope(base=10.0))),
    "base=10000": change(CONFIG, data=dict(seed=1)),
    "rotary=nope": change(CONFIG, model=dict(rotary=Nope())),
    "wider": change(CONFIG, model=dict(mlp_dim=24)),
}


@pytest.fixture
def sweep(tmp_path, tokenizer):
    for name, config in MEMBERS.items():
        write_run(tmp_path / name, config, tokenizer.model)
    (tmp_path / "sweep.json").write_text(
        json.dumps({"config": "test", "overrides": [], "members": list(MEMBERS)})
    )
    return tmp_path


@pytest.mark.parametrize(
    ("dynamic", "static"),
    [
        ("dynamic_yarn", "yarn({},original_context_length=16)"),
        ("dynamic_ntk_aware", "ntk_aware({})"),
    ],
)
def test_a_dynamic_row_is_stretched_by_its_own_length_alone(sweep, dynamic, static):
    """Each document as with its own static factor, whatever lies beside it in the batch."""
    (run,) = find_runs([sweep / "base=10"])
    lengths = (8, 64, 16, 33)

    def candidate_of(text):
        [member] = runner._load([run], runner.Options(variants=[text]), print)
        return member, member.candidate(*member.variants)

    member, candidate = candidate_of(f"{dynamic}(base=100,original_context_length=16)")
    random = np.random.default_rng(0)
    documents = [
        Document(
            tokens=random.integers(0, 300, length + 1).astype(np.int32),
            answers=np.array([[length - 1, 2, 1]], np.int32),
            number=number,
        )
        for number, length in enumerate(lengths)
    ]
    network = member.config.model.forward_architecture()
    together = score_lib.score(network, [candidate], documents, 64)
    for index, (length, document) in enumerate(zip(lengths, documents, strict=True)):
        stretched = static.format(f"base=100,factor={length / 16}")
        _, alone = candidate_of(stretched if length > 16 else "rope(base=100)")
        expected = score_lib.score(network, [alone], [document], 64)
        np.testing.assert_allclose(together.nll[:, index], expected.nll[:, 0], atol=1e-5)
        assert together.rank[0, index] == expected.rank[0, 0]
    # A table a row only where rows differ in theirs.
    assert score_lib._tables([candidate], documents[::2], 2).window.ndim == 2
    assert score_lib._tables([candidate], documents[:2], 2).window.ndim == 3


@pytest.fixture
def calls(monkeypatch) -> list[tuple[int, list[int]]]:
    """How many members each call of `score` has, and the ids of its first document."""
    calls = []

    def score(config, candidates, documents, *args, **kwargs):
        calls.append((len(candidates), documents[0].tokens.tolist()))
        return score_lib.score(config, candidates, documents, *args, **kwargs)

    monkeypatch.setattr(spread, "score", score)
    return calls


def test_every_member_gets_the_rows_it_gets_alone(sweep, calls):
    """And a task, length or run that is named twice is asked once."""
    tasks, lengths = ["kv", "lagcopy", "kv()"], [96, 96]
    results = evaluate([sweep, sweep / "base=10"], tasks=tasks, lengths=lengths)
    assert [count for count, _ in calls] == [3, 3, 1, 1]  # the wider one is another network
    assert [run.name for run, _, _ in results] == list(MEMBERS)
    for run, _, _ in results:
        written = rows.read(run.results_path)
        run.results_path.unlink()
        [(_, _, alone)] = evaluate([run.path], tasks=["kv", "lagcopy"])
        for name in set(rows.SCHEMA) - {"nll"}:
            assert written[name].tolist() == alone[name].tolist() or name == "base", name
        np.testing.assert_allclose(written["nll"], alone["nll"], atol=1e-4)

    tens, thousands, nope, _ = (new for _, _, new in results)
    assert set(tens["rotary"]) == {"rope(base=10)"} and set(tens["base"]) == {10.0}
    assert set(nope["rotary"]) == {"nope"} and np.isnan(nope["base"]).all()
    # kv at 96 asks 16 times a document; its documents are the same for all, their scores not.
    kv = rows.select(tens, task="kv")
    assert np.bincount(kv["document"]).tolist() == [16, 16, 16]
    assert kv["query"].tolist() == list(range(16)) * 3
    assert set(kv["trained_length"]) == set(kv["length"]) == {96}
    assert tens["distance"].tolist() == thousands["distance"].tolist()
    assert np.abs(tens["nll"] - thousands["nll"]).max() > 1e-3
    assert set(kv["chance"]) == {1 / 64} and set(kv["step"]) == {4}


def test_rows_of_training_are_asked_of_each_data_seed(sweep, calls, monkeypatch):
    """Each data seed has rows of its own; documents no model saw are the same."""
    monkeypatch.setattr(text, "prepared", lambda context, *, task: sweep)  # its tokenizer is ours
    evaluate([sweep], tasks=["step1"], documents=1)
    # base=10 and nope, the other seed, the other network.
    (two, rows_of_0), (single, rows_of_1), (wider, rows_of_wider) = calls
    assert (two, single, wider) == (2, 1, 1)
    assert rows_of_0 == rows_of_wider != rows_of_1


def test_a_published_model_is_asked_for_ids_without_text_by_name_only(
    tmp_path, tokenizer, monkeypatch, capsys
):
    """In a tokenizer without ids for them; what was trained here and came back knows them."""
    write_run(tmp_path / "run", CONFIG, tokenizer.model)
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({"imported": {}, **record}))
    evaluate([tmp_path / "run"], tasks=["kv"], documents=1)
    monkeypatch.setattr(tokenizer_lib, "_SYMBOLS", ["<absent>"] * 128)
    never_read = "run was imported and has never read such documents"
    assert never_read not in capsys.readouterr().err
    assert cli.main([str(tmp_path / "run"), "--tasks=kv", "--documents=2"]) == 0
    assert never_read in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="has never read such documents"):
        evaluate([tmp_path / "run"], documents=1)


HAY = "needle(haystack=needle)"
UNFIT = "vt does not fit length=96; the shortest that works with this tokenizer is"


@pytest.mark.parametrize("in_config", [False, True])
def test_what_fits_is_scored_and_the_rest_is_listed(tmp_path, tokenizer, capsys, in_config):
    """From the command line as from a config: three of four, for which the run has no text."""
    tasks, options = ("kv", "vt", "perplexity"), ["--lengths=96,200", "--documents=1"]
    config = dataclasses.replace(CONFIG, evals=EvalConfig(tasks=tasks if in_config else ("kv",)))
    run = write_run(tmp_path / "run", config, tokenizer.model)
    options += [] if in_config else [f"--tasks={','.join(tasks)}"]
    assert cli.main([str(run.path), *options, "--check"]) == 0
    checked = capsys.readouterr()
    assert not checked.out and not run.results_path.exists()
    assert cli.main([str(run.path), *options]) == 0
    output = capsys.readouterr().err
    for printed in (checked.err, output):
        skipped = [line for line in printed.splitlines() if line.startswith("skipped: ")]
        assert [UNFIT in line for line in skipped] == [True, False, False]
        assert "vt does not fit length=200" in skipped[1] and "perplexity needs text" in skipped[2]
        assert "scoring 2 documents: kv at 96, kv at 200" in printed
    assert set(rows.read(run.results_path)["task"]) == {"kv"}
    with pytest.raises(SystemExit, match="2"):
        cli.main([str(run.path), "--tasks=vt", *options[:1]])
    error = capsys.readouterr().err
    assert UNFIT in error and "length=200" in error and "scoring" not in error


@pytest.mark.parametrize("in_config", [False, True])
@pytest.mark.long
def test_rulers_tasks_are_scored_where_they_fit(tmp_path, tokenizer, in_config):
    """Five tasks need text, which this run does not have, and two the files of questions."""
    names = dict(tasks=("ruler",), lengths=(600, 2500))
    config = dataclasses.replace(CONFIG, evals=EvalConfig(**names if in_config else {}))
    run = write_run(tmp_path / "run", config, tokenizer.model)
    options = {} if in_config else names
    plan = runner.make_plan([run], runner.Options(**options, documents=1))
    fitting = ["needle", HAY, f"{HAY[:-1]},key_type=uuids,value_type=uuids)", "fwe"]
    expected = [f"{task} at {n}" for n in names["lengths"] for task in fitting]
    expected += ["vt at 2500", "cwe at 2500"]
    assert sorted(str(part) for _, part in plan.parts) == sorted(expected)
    counts = [
        sum(x in reason for reason in plan.skipped) for x in ("needs text", "qa", "length=600")
    ]
    assert counts == [5, 2, 3] and len(plan.skipped) == 10


def test_training_goes_on_without_the_tasks_that_do_not_fit(tokenizer, capsys):
    params = transformer.init(CONFIG.model, 0)
    options = runner.Options(tasks=["kv", "vt", "lines"], documents=1)
    (values,) = runner.evaluate_in_memory([CONFIG], [params], tokenizer, options)
    assert values.keys() == {"kv"}
    assert f"train.eval_tasks: skipped: {UNFIT}" in capsys.readouterr().err


def test_another_variant_at_evaluation_is_that_schedule(sweep):
    """The members start from the same parameters, so base 10 read as NoPE is NoPE."""
    runs = [sweep / "base=10", sweep / "rotary=nope"]
    [(_, _, as_nope), _] = evaluate(runs, tasks=["kv"], variants=["nope"])
    [(_, _, nope)] = evaluate(runs[1:], tasks=["kv"])
    np.testing.assert_allclose(as_nope["nll"], nope["nll"], atol=1e-5)
    assert set(as_nope["rotary"]) == {"nope"} and np.isnan(as_nope["base"]).all()


def test_a_window_of_33_tokens_has_an_effective_context_of_32(tmp_path, tokenizer, capsys):
    """The whole chain on a model whose reach is known: right within its window, blind beyond."""
    model, params = copying_model(tokenizer)
    leaves = leaves_by_name(params)
    for name, window in (("window", 33), ("all", None)):
        config = dataclasses.replace(CONFIG, model=dataclasses.replace(model, window=window))
        run = write_run(tmp_path / name, config, tokenizer.model, steps=())
        write_params(run, 4, leaves.items(), list(leaves))
    paths = [str(tmp_path / "window"), str(tmp_path / "all")]
    options = ("--tasks=kv", "--lengths=256", "--documents=48", "--step=4,4", "--format=markdown")
    assert cli.main([*paths, *options]) == 0

    result = rows.read(tmp_path / "window" / "results.jsonl")
    is_visible = result["distance"] <= 32
    assert result["exact_match"][is_visible].all()
    assert result["exact_match"][~is_visible].mean() < 0.1
    estimate = effective_context.estimate(result)
    assert 28 < estimate.ci_low <= 32 <= estimate.l50 <= estimate.ci_high < 42
    assert estimate.ceiling == pytest.approx(1, abs=0.02)
    captured = capsys.readouterr()
    window, unlimited = [line for line in captured.out.splitlines() if line.startswith("| ")][2:]
    assert str(estimate) in window
    longest = rows.read(tmp_path / "all" / "results.jsonl")["distance"].max()
    assert f"> {longest}" in unlimited
    assert f"report {' '.join(paths)}" in captured.err
