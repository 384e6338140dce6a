"""Helpers that several tests of `evals` share."""

import numpy as np

from ropewalk import evals
from ropewalk.data.config import DataConfig
from ropewalk.evals.rows import Rows
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model

# Of the prompts that retrieval tasks ask in words.
PROMPT_WORDS = (
    "A special magic number is hidden within the following text. Make sure to memorize it. I will "
    "quiz you about the number afterwards. One of the special magic numbers for is: What is the "
    "special magic number for mentioned in the provided text? The special magic number for "
    "mentioned in the provided text is The grass is green. The sky is blue. The sun is yellow. "
    "Here we go. There and back again. There is an important info hidden inside a lot of "
    "irrelevant text. Find it and memorize them. I will quiz you about the important information "
    "there. The pass key is Remember it. is the pass key. What is the pass key? The pass key is "
    "line : REGISTER_CONTENT is < line : REGISTER_CONTENT is < What is the best thing to do in "
    "San Francisco? Answer: The best thing to do in San Francisco is eat a sandwich and sit in "
    "Dolores Park on a sunny day. VAR = VAR Question: Find all variables"
)


def experiment(data: DataConfig, **evals) -> ExperimentConfig:
    """A run of the smallest model on `data`."""
    sizes = dict(vocab_size=1024, embed_dim=8, head_dim=4, mlp_dim=8)
    return ExperimentConfig(
        name="test", question="?", model=small_model(**sizes, rotary=Rope(base=100.0)), data=data,
        train=TrainConfig(num_steps=1, learning_rate=1e-3), evals=EvalConfig(**evals),
    )  # fmt: skip


def rows(**columns) -> Rows:
    """The columns that a pure function of rows reads."""
    data = {name: np.asarray(values) for name, values in columns.items()}
    num_rows = len(next(iter(data.values())))
    return {"task": np.full(num_rows, "test"), "num_bytes": np.zeros(num_rows, int)} | data


def make_documents(task, config, tokenizer, length, numbers):
    """Those that a run is asked; `task` as an object or an expression."""
    task = evals.parse(task) if isinstance(task, str) else task
    return task.documents(evals.task_context(config, tokenizer, length), numbers)
