"""Damaged prepared data must be reported before any use."""

import random
import re
import shutil
from pathlib import Path

import pytest

from ropewalk.data.prepare import main
from ropewalk.data.store import TokenStore
from tests.damage import flip
from tests.data.helpers import run_prepare as run
from tests.data.helpers import write_corpus


@pytest.fixture
def root(tmp_path, tokenizer) -> Path:
    """Texts in `in`, and the data prepared from them in `out`, which no process has verified."""
    (tmp_path / "new").mkdir()
    run(write_corpus(tmp_path / "new", tokenizer))
    return (tmp_path / "new").rename(tmp_path / "moved")


NAMES = ["prepare.json", "tokenizer.model", "validation/store.json"]
NAMES += ["train/00000.starts.npy", "train/00000.array_record"]


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_refused(root, name):
    (folder,) = (root / "out").glob("*")
    path = folder / name
    content, generator = path.read_bytes(), random.Random(name)
    for _ in range(9):
        flip(path, generator.randrange(8 * len(content)))
        with pytest.raises(ValueError, match=re.escape(str(path))) as refusal:
            run(root)
        assert "\n" not in str(refusal.value)
        path.write_bytes(content)
    assert run(root) == folder


def test_every_damaged_file_is_named(root, capsys):
    (folder,) = (root / "out").glob("*")
    other = shutil.copytree(folder, root / "out" / "second")
    ids = TokenStore(folder / "train").read(50, 20).astype("<u2").tobytes()
    records = folder / "train" / "00000.array_record"
    flip(records, 8 * records.read_bytes().index(ids))
    flip(folder / "validation" / "00000.starts.npy", 8 * 129)
    assert main(["--verify", "--out", str(root / "out")]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if "error" in line]
    names = ("train/00000.array_record", "validation/00000.starts.npy")
    for line, name in zip(lines, names, strict=True):
        assert f": error: {folder}/{name}: damaged" in line
        assert line.endswith(f"; delete {folder}, and it is prepared anew")
    assert out.splitlines() == [f"{other}: intact"]
    assert main(["--verify", str(other)]) == 0
