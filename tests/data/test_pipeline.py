import hashlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from ropewalk.data.mixture import RetrievalRows, retrieval_task
from ropewalk.data.pipeline import make_batches, open_data
from ropewalk.data.prepare import prepare
from ropewalk.data.task import TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils import plugins
from tests.data.helpers import make_config, plain_text, write_jsonl
from tests.evals.test_new_task import ECHO

CONTEXT = 200


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root = tmp_path_factory.mktemp("pipeline")
    write_jsonl(root / "in" / "a.jsonl", [plain_text(i) for i in range(300)])
    return make_config(root, context_length=CONTEXT, batch_size=8, retrieval_fraction=0.5)


@pytest.fixture(scope="module")
def prepared(config):
    return prepare(config)


def take(count, config, prepared, **kwargs):
    return list(itertools.islice(make_batches(open_data(config, prepared), **kwargs), count))


def rows(batches):
    """All batches' rows in order, by column."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_batch_size_cuts_the_same_rows(config, prepared):
    """Equal hashes mean equal row numbers and equal ids."""
    eights = rows(take(6, config, prepared, start_step=0))
    twelves = rows(take(4, replace(config, batch_size=12), prepared, start_step=0))
    assert_same(eights, twelves)


@pytest.mark.parametrize("hosts", [2, 8])
def test_hosts_share_every_batch(config, prepared, hosts):
    batches = take(5, config, prepared, start_step=2)
    parts = [
        take(5, config, prepared, start_step=2, host_rows=range(8)[h * 8 // hosts :][: 8 // hosts])
        for h in range(hosts)
    ]
    for batch, *shares in zip(batches, *parts, strict=True):
        assert_same(batch, {n: np.concatenate([s[n] for s in shares]) for n in batch})


def test_row_hash_is_of_number_and_ids(config, prepared):
    batch = take(1, config, prepared, start_step=3)[0]
    for i, (tokens, row_hash) in enumerate(zip(batch["tokens"], batch["row_hash"], strict=True)):
        data = (3 * 8 + i).to_bytes(8, "little") + tokens.astype("<i4").tobytes()
        digest = hashlib.blake2b(data, digest_size=8).digest()
        assert int(row_hash) == int.from_bytes(digest, "little")


def test_mixture_keeps_its_shares_in_any_stretch(config, prepared):
    tokenizer = Tokenizer(prepared / "tokenizer.model")
    columns = rows(take(75, replace(config, retrieval_fraction=0.3), prepared, start_step=5))
    # The first target counts in text, unless a document ends there, but never in retrieval rows.
    is_text = columns["loss_mask"][:, 0] > 0
    has_key = np.isin(columns["tokens"], tokenizer.keys).any(axis=1)
    line = tokenizer.encode("line ")
    is_lines = (columns["tokens"][:, 1 : 1 + len(line)] == line).all(axis=1) & ~is_text
    shares = [part.mean() for part in (is_text, has_key, is_lines)]
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.1], atol=0.02)


def test_retrieval_rows_are_training_documents_padded(config, prepared):
    tokenizer = Tokenizer(prepared / "tokenizer.model")
    context = TaskContext(data=config, tokenizer=tokenizer, length=CONTEXT, seed=4, split="train")
    for task in config.retrieval_tasks:
        (document,) = retrieval_task(task).documents(context, range(11, 12))
        row = RetrievalRows(task, context)[11]
        count = len(document.tokens) - 1
        np.testing.assert_array_equal(row["tokens"][:count], document.tokens[:-1])
        np.testing.assert_array_equal(row["targets"][:count], document.tokens[1:])
        # The logits at i - 1 give token i.
        answers = [range(start - 1, start - 1 + n) for start, n, _ in document.answers.tolist()]
        assert np.flatnonzero(row["loss_mask"]).tolist() == sorted(itertools.chain(*answers))
        np.testing.assert_array_equal(row["segment_ids"], np.arange(CONTEXT) < count)
        assert all(not row[name][count:].any() for name in row)


@pytest.mark.long
def test_worker_processes_give_the_same_stream(config, prepared, tmp_path):
    """Workers must also run the task of a file that only their parent's command line named."""
    (tmp_path / "echo.py").write_text(ECHO)
    plugins.allow(tmp_path / "echo.py")
    config = replace(config, retrieval_tasks=("kv", "lagcopy", f"{tmp_path}/echo.py:Echo"))
    ours = take(7, replace(config, num_workers=2), prepared, start_step=3)
    assert_same(rows(ours), rows(take(7, config, prepared, start_step=3)))
