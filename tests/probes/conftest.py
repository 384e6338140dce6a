"""A tokenizer for synthetic models."""

from pathlib import Path

import pytest

from ropewalk.data import tokenizer as tokenizer_lib


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("made") / "tokenizer.model"
    tokenizer_lib.train([" ".join(f"{7919 * i % 2**20:x}" for i in range(2000))], path, 600)
    return path
