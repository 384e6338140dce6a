"""lm-evaluation-harness with a run, and with transformers on the exported run: `make test-hf`."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.__main__ import main
from ropewalk.interop.export import export
from ropewalk.interop.lm_eval import register
from ropewalk.training.loop import train
from tests.models import make_plan

pytestmark = pytest.mark.hf

LENGTH = 64
QUESTION = """
task: code
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/code.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{before}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: " "
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
TEXT = """
task: texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/texts.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: bits_per_byte}}]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_data) -> RunDirectory:
    pytest.importorskip("lm_eval")
    arguments = [*tiny_data, "train.num_steps=20", "train.save_every=20"]
    run = RunDirectory(tmp_path_factory.mktemp("asked") / "run")
    config = overrides.apply(find_config("tiny"), arguments)
    assert train(make_plan([config], [run], overrides=arguments), command="test")
    return run


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "run"
    export(run.path, folder)
    return folder


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """Two tasks in the harness's format, with files of documents."""
    folder = tmp_path_factory.mktemp("tasks")
    random = np.random.default_rng(0)
    pieces = ["def", "import os", "  return", "\u2581", "é 漢", "12"]
    rows = []
    for _ in range(24):
        before = " ".join(random.choice(pieces, random.integers(1, 40)))
        # Also one whose end and what follows share a piece, and spaces before the cut.
        choices = [str(choice) for choice in random.choice(pieces, 3, replace=False)]
        rows.append({"before": before + " " * random.integers(3), "choices": choices, "answer": 1})
    (folder / "code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = [" ".join(random.choice(pieces, size)) for size in (1, 40, 400, 900)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (folder / "code.yaml").write_text(QUESTION.format(folder=folder))
    (folder / "texts.yaml").write_text(TEXT.format(folder=folder))
    return folder


def ask(run: RunDirectory, tasks: Path, names: str, monkeypatch) -> dict:
    monkeypatch.setattr("sys.argv", [])  # which the command sets
    arguments = [str(run.path), "--tasks", names, "--include_path", str(tasks)]
    assert main(["lm_eval", *arguments]) == 0
    (out,) = (run.path / "lm_eval").glob("results_*.json")
    return json.loads(out.read_text())


@pytest.mark.long
def test_scores_equal_transformers(run, tasks, exported, monkeypatch):
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    ours = ask(run, tasks, "code,texts", monkeypatch)["results"]
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    theirs = {}
    # Of whole texts the harness's own class would score BOS after BOS (#3333): not with this.
    models = {}
    for name, bos in (("code", None), ("texts", False)):
        models[name] = model = HFLM(
            str(exported), device="cpu", dtype="float32", batch_size=4,
            max_length=LENGTH, add_bos_token=bos,
        )  # fmt: skip
        output = lm_eval.simple_evaluate(model, tasks=[name], task_manager=manager)
        theirs |= output["results"]
    # Why: with its own rule it scores one id more, which no text has.
    output = lm_eval.simple_evaluate(models["code"], tasks=["texts"], task_manager=manager)
    doubled = output["results"]["texts"]["bits_per_byte,none"]
    assert doubled > theirs["texts"]["bits_per_byte,none"] + 1e-3
    for name, metrics in (("code", ["acc", "acc_norm"]), ("texts", ["bits_per_byte"])):
        for metric in metrics:
            mine, other = (results[name][f"{metric},none"] for results in (ours, theirs))
            assert mine == pytest.approx(other, abs=1e-4), (name, metric)
    assert math.log(ours["texts"]["word_perplexity,none"]) == pytest.approx(
        math.log(theirs["texts"]["word_perplexity,none"]), abs=1e-4
    )


def test_log_likelihoods_equal_transformers(run, exported):
    """Log likelihoods, not only the choices they lead to."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(str(exported), device="cpu", dtype="float32", batch_size=2)
    ours = register()(str(run.path), batch_size=8, device="cpu")
    pairs = [("import", " os"), ("", "def f"), ("a " * 200, "b"), ("x  ", "y"), ("</s>", "<s>")]
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    for mine, other in zip(
        ours.loglikelihood(requests), theirs.loglikelihood(requests), strict=True
    ):
        assert mine == (pytest.approx(other[0], abs=1e-3), other[1])


def test_generated_texts_equal_transformers(run, exported):
    """Greedy, up to a stop string or a number of tokens; long prompts keep their end."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(str(exported), device="cpu", dtype="float32", batch_size=1)
    ours = register()(str(run.path))
    wishes = [
        ("import os", {"until": ["zzz"], "max_gen_toks": 12}),
        ("def f(x):", {"until": [" "], "max_gen_toks": 20, "do_sample": False}),
        ("word " * 100, {"until": "\n\n", "max_gen_toks": 16}),
    ]
    requests = [Instance("generate_until", {}, wish, i) for i, wish in enumerate(wishes)]
    assert ours.generate_until(requests) == theirs.generate_until(requests)
