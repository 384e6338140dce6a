"""Files that are whole or not there, whoever writes them."""

from concurrent.futures import ThreadPoolExecutor

from data.files import write_atomically


def test_many_may_write_one_file_at_once(tmp_path):
    """As the jobs of an array do that begin one sweep in the same second."""
    path = tmp_path / "sweep.json"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: write_atomically(path, str(number) * 1000), range(200)))
    (kept,) = tmp_path.iterdir()
    assert kept == path and len({*path.read_text()}) <= 3
