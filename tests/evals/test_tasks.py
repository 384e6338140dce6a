"""Every task, found by walking the folder."""

import numpy as np
import pytest

import evals
from data.config import DataConfig
from experiment.config import ExperimentConfig, TrainConfig
from model.config import ModelConfig
from model.rotary.rope import Rope

CONFIG = ExperimentConfig(
    name="test",
    question="?",
    model=ModelConfig(
        vocab_size=512,
        embed_dim=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=4,
        mlp_dim=8,
        rotary=Rope(base=100.0),
    ),
    data=DataConfig(context_length=256, batch_size=1, vocab_size=512),
    train=TrainConfig(num_steps=1, learning_rate=1e-3),
)
GENERATED = ("kv", "lagcopy", "lines")


def test_a_file_with_documents_is_a_task():
    assert sorted(evals.tasks()) == ["kv", "lagcopy", "lines", "perplexity"]


@pytest.mark.parametrize("task", GENERATED)
def test_questions_are_of_ids_inside_the_document(task, tokenizer):
    module = evals.tasks()[task]
    length = 512
    found = module.documents(CONFIG, tokenizer, length, 8)
    assert len(found) == 8 and len({each.tokens.tobytes() for each in found}) == 8
    for each in found:
        start, count, distance = each.answers.T
        assert len(each.tokens) <= length + 1 and each.tokens[0] == tokenizer.bos_id
        assert (start - 1 - distance >= 1).all() and (start + count <= len(each.tokens)).all()
        for first, size, back in each.answers.tolist():
            # What is asked for was said `distance` before the position that must answer.
            said = first - 1 - back
            np.testing.assert_array_equal(
                each.tokens[said : said + size], each.tokens[first : first + size]
            )
    assert 0 < module.chance(tokenizer) < 0.05


@pytest.mark.parametrize("task", GENERATED)
def test_a_length_below_a_tasks_floor_is_refused(task, tokenizer):
    with pytest.raises(ValueError, match=f"{task} does not fit length=3"):
        evals.tasks()[task].documents(CONFIG, tokenizer, 3, 1)
