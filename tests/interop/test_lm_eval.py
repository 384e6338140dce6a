"""lm-evaluation-harness on an exported run, as docs/interop.md shows it: `make test-hf`."""

import json
import shutil

import numpy as np
import pytest

from ropewalk.experiment import load
from ropewalk.interop.export import export
from tests.conftest import ROOT
from tests.interop.weights_helpers import PLAIN, changed, make_run

pytestmark = [pytest.mark.hf, pytest.mark.slow]
TASK = """
task: texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/texts.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte}}]
"""


def test_scores_are_those_of_the_run_with_one_bos(tmp_path):
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    run = make_run(tmp_path / "run", changed(PLAIN, vocab_size=512))
    shutil.copy(ROOT / "notebooks/runs/base=10,num_heads=1/tokenizer.model", run.path)
    export(run.path, tmp_path / "out")
    texts = ["import os\n", "def f(x):\n    return x", "é 漢 \u2581 12"]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (tmp_path / "texts.yaml").write_text(TASK.format(folder=tmp_path))
    options = f"pretrained={tmp_path}/out,dtype=float32,add_bos_token=False"
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    output = lm_eval.simple_evaluate(
        "hf", options, tasks=["texts"], task_manager=manager, device="cpu"
    )
    loaded, nats = load(run.path), 0.0
    for text in texts:
        ids = [loaded.tokenizer.bos_id, *loaded.tokenizer.encode(text)]
        logits_TV = np.asarray(loaded.logits(np.array([ids[:-1]])))[0].astype(np.float64)
        nats += (
            np.log(np.exp(logits_TV).sum(-1)).sum() - logits_TV[range(len(ids) - 1), ids[1:]].sum()
        )
    expected = nats / np.log(2) / sum(len(text.encode()) for text in texts)
    assert output["results"]["texts"]["bits_per_byte,none"] == pytest.approx(expected, abs=1e-4)
