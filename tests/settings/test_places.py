"""An address is refused wherever a path is taken; a path is left as it is."""

from pathlib import Path

import pytest

from data.config import DataConfig
from experiment.run import RunDirectory, find_runs, find_start
from settings.places import local
from training.sweep import train_sweep


def test_paths_are_left_as_they_are():
    for path in ("runs/demo", "/mnt/s3:/run", "runs/base=10,seed=1", "a:b/c", "C:/runs", ".."):
        assert local(path) == Path(path)


TAKES_A_PATH = {
    "a path": local,
    "a run": RunDirectory,
    "runs to read": lambda path: find_runs([path]),
    "a run to start from": find_start,
    "a sweep": lambda path: train_sweep(None, Path(path), []),
    **{
        f"data.{field}": lambda path, field=field: DataConfig(
            context_length=8, batch_size=1, **{field: path}
        )
        for field in ("path", "tokenizer", "prepared_root")
    },
}


@pytest.mark.parametrize("takes", TAKES_A_PATH.values(), ids=TAKES_A_PATH)
@pytest.mark.parametrize("address", ["s3://bucket/run", "gs://b/a@3", "https://site/x.jsonl"])
def test_an_address_is_refused_in_one_line(takes, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for written in (address, Path(address)):  # a Path keeps one slash
        with pytest.raises(
            ValueError, match=f"{address.partition('@')[0]}.* is an address"
        ) as caught:
            takes(str(written))
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
