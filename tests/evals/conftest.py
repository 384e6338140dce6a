import numpy as np
import pytest

from ropewalk.data import tokenizer as tokenizer_lib
from ropewalk.data import word_lists
from ropewalk.data.prepare import prepare
from ropewalk.data.store import TokenStore
from tests.data.helpers import make_config, write_jsonl
from tests.evals.helpers import PROMPT_WORDS, experiment


@pytest.fixture(scope="session")
def prompt_tokenizer(tmp_path_factory):
    """One to which the words of prompts are single pieces, or nearly."""
    path = tmp_path_factory.mktemp("tokenizer") / "prompts.model"
    lists = (word_lists.ADJECTIVES, word_lists.NOUNS, word_lists.HELD_OUT_NOUNS)
    texts = [PROMPT_WORDS] * 9 + [" ".join(entries) for entries in lists] * 4
    tokenizer_lib.train([*texts, *("-" + word for word in lists[1] + lists[2])], path, 2600)
    return tokenizer_lib.Tokenizer(path)


@pytest.fixture(scope="session")
def prose_config(prompt_tokenizer, tmp_path_factory):
    """A run on sentences, with `prompt_tokenizer`."""
    folder, random = tmp_path_factory.mktemp("prose"), np.random.default_rng(0)
    (folder / "t.model").write_bytes(prompt_tokenizer.model)
    for name, count in (("train", 1), ("validation", 40)):
        words = random.choice(word_lists.NOUNS, (count, 90, 9))
        texts = [" ".join(" ".join(line).capitalize() + "." for line in text) for text in words]
        write_jsonl(folder / "in" / f"{name}.jsonl", texts)
    data = make_config(folder, context_length=64, batch_size=2)
    prepare(data)
    return experiment(data)


@pytest.fixture(scope="session")
def text_config(tmp_path_factory):
    """A run whose held-out documents have lengths all over the place."""
    folder, random = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    for name in ("train", "validation"):
        numbers = [random.integers(0, 10**6, size) for size in (40, 90, 300, 301, 2000)]
        texts = [" ".join(f"{number:x}" for number in row) for row in numbers]
        write_jsonl(folder / "in" / f"{name}.jsonl", texts, meta={})
    data = make_config(folder, context_length=64, batch_size=2)
    prepare(data)
    return experiment(data)


@pytest.fixture(scope="session")
def text_tokenizer(text_config):
    return tokenizer_lib.Tokenizer(prepare(text_config.data) / "tokenizer.model")


@pytest.fixture(scope="session")
def store(text_config):
    """The held-out documents."""
    return TokenStore(prepare(text_config.data) / "validation")
