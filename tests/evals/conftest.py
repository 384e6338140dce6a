import json

import numpy as np
import pytest

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data import word_lists
from ropewalk.data.config import DataConfig
from ropewalk.data.prepare import prepare
from ropewalk.data.store import TokenStore
from tests.evals.helpers import PROMPT_WORDS, experiment, write_texts


@pytest.fixture(scope="session")
def prompt_tokenizer(tmp_path_factory):
    """One to which the words of prompts are single pieces, or nearly."""
    path = tmp_path_factory.mktemp("tokenizer") / "prompts.model"
    lists = (word_lists.ADJECTIVES, word_lists.NOUNS, word_lists.HELD_OUT_NOUNS)
    names = word_lists.FIRST_NAMES + word_lists.LAST_NAMES
    texts = [PROMPT_WORDS] * 9 + [" ".join(entries) for entries in (*lists, names)] * 4
    tokenizer_lib.train([*texts, *("-" + word for word in lists[1] + lists[2])], path, 2600)
    return tokenizer_lib.Tokenizer(path)


@pytest.fixture(scope="session")
def prose_config(prompt_tokenizer, tmp_path_factory):
    """A run on sentences, with `prompt_tokenizer`."""
    folder = tmp_path_factory.mktemp("prose")
    (folder / "tokenizer.model").write_bytes(prompt_tokenizer.model)
    random = np.random.default_rng(0)
    for name, count in (("train", 1), ("validation", 40)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(count):
                chosen = random.choice(word_lists.NOUNS, (90, 9))
                text = " ".join(" ".join(sentence).capitalize() + "." for sentence in chosen)
                file.write(json.dumps({"text": text}) + "\n")
    data = DataConfig(
        source="jsonl", path=str(folder), tokenizer=str(folder / "tokenizer.model"),
        context_length=64, batch_size=2, prepared_root=str(folder / "prepared"),
    )  # fmt: skip
    prepare(data)
    return experiment(data)


@pytest.fixture(scope="session")
def text_config(tmp_path_factory):
    """A run whose held-out documents have lengths all over the place."""
    data = write_texts(tmp_path_factory.mktemp("text"), (40, 90, 300, 301, 2000))
    prepare(data)
    return experiment(data)


@pytest.fixture(scope="session")
def text_tokenizer(text_config):
    return tokenizer_lib.Tokenizer(prepare(text_config.data) / "tokenizer.model")


@pytest.fixture(scope="session")
def store(text_config):
    """The held-out documents."""
    return TokenStore(prepare(text_config.data) / "validation")
