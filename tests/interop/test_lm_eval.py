"""lm-evaluation-harness with a run, and with transformers on the exported run: `make test-hf`."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ropewalk.experiment.run import RunDirectory
from ropewalk.interop.__main__ import main
from ropewalk.interop.export import export
from ropewalk.interop.lm_eval import register
from tests.models import tiny_config, train_run

pytestmark = pytest.mark.hf

LENGTH = 64
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
    config = tiny_config(*tiny_data, "train.num_steps=20", "train.save_every=20")
    return train_run(config, tmp_path_factory.mktemp("asked") / "run")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "run"
    export(run.path, folder)
    return folder


def theirs_of(exported: Path, **options):
    """Return the harness's own class for a folder."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(str(exported), device="cpu", dtype="float32", **options)


@pytest.mark.long
def test_the_command_writes_scores_that_equal_transformers(run, exported, tmp_path, monkeypatch):
    """Whole texts, which the harness's own class would score with BOS after BOS (#3333)."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    random = np.random.default_rng(0)
    pieces = ["def", "import os", "  return", "\u2581", "é 漢", "12"]
    texts = [" ".join(random.choice(pieces, size)) for size in (1, 40, 400, 900)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (tmp_path / "texts.yaml").write_text(TEXT.format(folder=tmp_path))
    monkeypatch.setattr("sys.argv", [])  # which the command sets
    tasks = ["--tasks", "texts", "--include_path", str(tmp_path)]
    assert main(["lm_eval", str(run.path), *tasks]) == 0
    (out,) = (run.path / "lm_eval").glob("results_*.json")
    ours = json.loads(out.read_text())["results"]["texts"]
    model = theirs_of(exported, batch_size=4, max_length=LENGTH, add_bos_token=False)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    output = lm_eval.simple_evaluate(model, tasks=["texts"], task_manager=manager)
    theirs = output["results"]["texts"]
    for name in ("bits_per_byte,none", "word_perplexity,none"):
        assert math.log(ours[name]) == pytest.approx(math.log(theirs[name]), abs=1e-4)


def test_log_likelihoods_equal_transformers(run, exported):
    """Log likelihoods, not only the choices they lead to."""
    from lm_eval.api.instance import Instance

    theirs = theirs_of(exported, batch_size=2)
    ours = register()(str(run.path), batch_size=8, device="cpu")
    pairs = [("import", " os"), ("", "def f"), ("a " * 200, "b"), ("x  ", "y"), ("</s>", "<s>")]
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    both = (model.loglikelihood(requests) for model in (ours, theirs))
    for mine, other in zip(*both, strict=True):
        assert mine == (pytest.approx(other[0], abs=1e-3), other[1])


def test_generated_texts_equal_transformers(run, exported):
    """Greedy, up to a stop string or a number of tokens; long prompts keep their end."""
    from lm_eval.api.instance import Instance

    theirs = theirs_of(exported, batch_size=1)
    ours = register()(str(run.path))
    wishes = [
        ("import os", {"until": ["zzz"], "max_gen_toks": 12}),
        ("def f(x):", {"until": [" "], "max_gen_toks": 20, "do_sample": False}),
        ("word " * 100, {"until": "\n\n", "max_gen_toks": 16}),
    ]
    requests = [Instance("generate_until", {}, wish, i) for i, wish in enumerate(wishes)]
    assert ours.generate_until(requests) == theirs.generate_until(requests)
