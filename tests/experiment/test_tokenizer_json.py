"""A run whose tokenizer is a `tokenizer.json`: `make test-hf`."""

import pytest

from configs import find_config
from data.tokenizer import Tokenizer
from experiment import load, overrides
from experiment.keep import keep
from experiment.run import RunDirectory
from tests.data import json_tokenizers
from tests.data.helpers import plain_text, write_jsonl
from training.loop import train
from training.plan import make_plan

pytestmark = pytest.mark.hf


@pytest.mark.long
def test_it_trains_is_asked_and_is_kept(tmp_path):
    pytest.importorskip("tokenizers")
    texts = [plain_text(number) for number in range(400)]
    write_jsonl(tmp_path / "a.jsonl", texts)
    path = json_tokenizers.qwen(texts, tmp_path / "published", size=700)
    changes = [
        "data.source=jsonl", f"data.path={tmp_path / 'a.jsonl'}", f"data.tokenizer={path}",
        f"data.prepared_root={tmp_path / 'prepared'}", "model.vocab_size=768",
        "train.num_steps=2", "train.save_every=2", "evals.tasks=[kv]",
    ]  # fmt: skip
    run = RunDirectory(tmp_path / "run")
    config = overrides.apply(find_config("tiny"), changes)
    assert train(make_plan([config], [run], overrides=[changes]), command="test")
    assert run.tokenizer_path == tmp_path / "run" / "tokenizer.json"
    loaded = load(run.path)
    assert loaded.tokenizer == Tokenizer(path)
    assert loaded.logits("the cat").shape[-1] == 768
    keep([run.path], tmp_path / "kept", None, command="test")
    assert load(tmp_path / "kept" / "run").tokenizer == Tokenizer(path)
    run.tokenizer_path.write_bytes(loaded.tokenizer.model.replace(b"ba", b"ab", 1))
    with pytest.raises(ValueError, match="damaged"):
        _ = RunDirectory(run.path).tokenizer
