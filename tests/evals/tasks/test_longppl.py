"""Key tokens and their loss, from logits and characters, token by token."""

import numpy as np
import pytest
from scipy.special import logsumexp

from ropewalk.evals import runner
from ropewalk.evals.estimate import summaries
from ropewalk.experiment import load
from tests.evals.helpers import make_documents
from tests.models import write_run

LENGTH, SHORT, STRIDE, GAIN, LOSS = 60, 17, 5, 1e-3, 6.93


def nll(run, ids):
    """Nats of each id after BOS and the ids before it; a causal model does not see the zeros."""
    tokens = np.zeros((1, 129), int)
    tokens[0, : len(ids) + 1] = [run.tokenizer.bos_id, *ids]
    logits = np.asarray(run.logits(tokens), float)[0, : len(ids)]
    return logsumexp(logits, axis=1) - logits[np.arange(len(ids)), ids]


def key_tokens(run, ids):
    losses = nll(run, ids)
    for i in range(SHORT, len(ids)):
        start = (i - SHORT) // STRIDE * STRIDE
        gain = nll(run, ids[start : i + 1])[-1] - losses[i]
        if gain > GAIN and losses[i] < LOSS:
            yield i


@pytest.mark.slow
def test_key_tokens_and_their_loss(text_config, text_tokenizer, tokenizer, tmp_path):
    write_run(tmp_path / "run", text_config, text_tokenizer.model, salt=1)
    write_run(tmp_path / "judge", text_config, text_tokenizer.model)
    write_run(tmp_path / "other", text_config, tokenizer.model)
    run, judge, other = (load(tmp_path / name) for name in ("run", "judge", "other"))
    path = f"{text_config.data.path}/validation.jsonl"
    for reader in (judge, other, run):
        task = (
            f"longppl(judge='{reader.directory.path}',path='{path}',short={SHORT},stride={STRIDE},"
            f"gain={GAIN},loss={LOSS})"
        )
        expected, counts = [], 0
        for document in make_documents(task, text_config, text_tokenizer, LENGTH, range(1)):
            ids = document.tokens[1:]
            if reader is other:
                sizes = [len(text_tokenizer.piece_bytes[i]) for i in ids]
                read = other.tokenizer.encode(text_tokenizer.decode(ids), inside=True)
                other_sizes = [len(other.tokenizer.decode([i])) for i in read]
                owner = np.repeat(range(len(read)), other_sizes)
                is_key = np.isin(owner, list(key_tokens(other, read)))  # of each byte of the text
                parts = np.split(is_key, np.cumsum(sizes)[:-1])
                keys = [i for i, part in enumerate(parts) if part.all()]
            else:
                keys = list(key_tokens(reader, ids))
            assert document.answers.tolist() == [[i + 1, 1, i] for i in keys]
            expected += nll(run, ids)[keys].tolist()
            counts += len(ids) - SHORT
        assert 5 < len(expected) < counts - 5
        options = runner.Options(tasks=[task], lengths=[LENGTH], documents=1)
        ((_, _, rows),) = runner.evaluate([run.directory.path], options)
        np.testing.assert_allclose(rows["nll"], expected, rtol=1e-5)
        assert summaries.perplexity(rows) == pytest.approx(np.exp(np.mean(expected)))
        assert rows["num_bytes"].min() > 0
    task = task.replace(f"gain={GAIN}", "gain=9")
    with pytest.raises(ValueError, match="no token at length 60 gains 9 nats"):
        make_documents(task, text_config, text_tokenizer, LENGTH, range(3))
