"""Damaged prepared data must be reported before any use."""

import random
import shutil
from pathlib import Path

import pytest

from ropewalk.data import verify
from ropewalk.data.prepare import main
from ropewalk.data.store import TokenStore
from tests.damage import flip
from tests.data.helpers import run_prepare as run
from tests.data.helpers import write_corpus


@pytest.fixture(scope="module")
def pristine(tmp_path_factory, tokenizer) -> Path:
    """Texts in `in`, and the data prepared from them in `out`."""
    root = write_corpus(tmp_path_factory.mktemp("pristine"), tokenizer)
    run(root)
    return root


@pytest.fixture
def root(pristine, tmp_path) -> Path:
    return shutil.copytree(pristine, tmp_path / "copy")


def contents(folder: Path) -> list:
    """Return everything that a run reads from a prepared folder."""
    stores = [TokenStore(folder / split) for split in verify.SPLITS]
    return [
        (folder / "tokenizer.model").read_bytes(),
        *((store.fingerprint, store.bos_id) for store in stores),
        *([store.document(i).tolist() for i in range(store.num_documents)] for store in stores),
    ]


NAMES = ["prepare.json", "tokenizer.model", "validation/store.json"]
NAMES += ["train/00000.starts.npy", "train/00000.array_record"]


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_refused_or_changes_nothing(root, pristine, name):
    (folder,) = (root / "out").glob("*")
    expected = contents(next((pristine / "out").glob("*")))
    path = folder / name
    content, refused = path.read_bytes(), 0
    generator = random.Random(name)
    for _ in range(9):
        flip(path, generator.randrange(8 * len(content)))
        try:
            assert contents(run(root)) == expected
        except ValueError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
        path.write_bytes(content)
    assert refused == 9
    assert contents(run(root)) == expected


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
        assert line.startswith(f"python -m data.prepare: error: {folder}/{name}: damaged")
        assert line.endswith(f"; delete {folder}, and it is prepared anew")
    assert out.splitlines() == [f"{other}: intact"]
    assert main(["--verify", str(other)]) == 0
