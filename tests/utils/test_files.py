"""Atomic writes by concurrent and killed processes."""

from concurrent.futures import ThreadPoolExecutor

from utils.files import write_atomically


def test_many_may_write_one_file_at_once(tmp_path):
    """The jobs of an array start one sweep in the same second."""
    path = tmp_path / "sweep.json"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: write_atomically(path, str(number) * 1000), range(200)))
    (file,) = tmp_path.iterdir()
    assert file == path and len({*path.read_text()}) <= 3
