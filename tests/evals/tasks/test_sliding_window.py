import dataclasses

import jax
import numpy as np

from ropewalk.data.config import DataConfig
from ropewalk.evals import score
from ropewalk.evals.estimate import summaries
from ropewalk.evals.score import Candidate
from ropewalk.evals.tasks.sliding_window import SlidingWindow, windows
from ropewalk.reporting.task_view import view_of
from tests.evals.helpers import experiment, make_documents, rows
from tests.model import test_llama_reference as llama


def test_windows_of_a_text_of_eleven_tokens():
    """BOS is 1, the text is 10 ... 20."""
    sizes = np.stack([np.arange(12), np.arange(12) % 2], axis=1)
    result = windows(np.array([1, *range(10, 21)]), sizes, length=6, stride=2)
    assert [document.tokens.tolist() for document in result] == [
        [1, 10, 11, 12, 13, 14, 15],
        [1, 12, 13, 14, 15, 16, 17],
        [1, 14, 15, 16, 17, 18, 19],
        [1, 16, 17, 18, 19, 20],
    ]
    # First index, number of ids, context.
    assert [document.answers.tolist() for document in result] == [
        [[1, 6, 0]],
        [[5, 2, 4]],
        [[5, 2, 4]],
        [[5, 1, 4]],
    ]
    assert [document.first_query for document in result] == [0, 1, 2, 3]
    # Sizes 1 + ... + 6 of the first window's ids, then 7 + 8, 9 + 10, 11.
    assert [int(document.num_bytes[0]) for document in result] == [21, 15, 19, 11]
    assert [int(document.num_words[0]) for document in result] == [3, 1, 1, 1]


SIZES = ("num_bytes", "num_words")


def test_bytes_and_words_are_those_of_the_held_out_text(text_config, text_tokenizer, store):
    task = SlidingWindow(stride=16, tokens=10**6)
    result = make_documents(task, text_config, text_tokenizer, 64, range(99))
    texts = [text_tokenizer.decode(store.document(i)) for i in range(store.num_documents)]
    totals = [
        [sum(int(x) for e in result if e.number == n for x in getattr(e, name)) for name in SIZES]
        for n in range(len(texts))
    ]
    assert sorted(totals) == sorted([len(t.encode()), len(t.split())] for t in texts)
    # All ids but each document's BOS and EOS.
    num_tokens = sum(int(document.answers[0, 1]) for document in result)
    assert num_tokens == store.num_tokens - 2 * store.num_documents


# Against transformers: the loop of its perplexity guide (docs/source/en/perplexity.md, after
# #34387 and #40524) on the same weights, with BOS in every window.

LENGTH, STRIDE = 24, 8
TEXT = np.random.RandomState(3).randint(2, llama.V, 83)
# What that loop gave with transformers 5.23 and torch 2.13: nats a token, and mean over windows.
LITERALS = (6.3194823, 6.1308734)


def ours() -> tuple[float, float]:
    config = dataclasses.replace(
        experiment(DataConfig(context_length=LENGTH, batch_size=1)).model, vocab_size=llama.V,
        embed_dim=llama.D, num_layers=llama.L, num_heads=llama.N, num_kv_heads=llama.K,
        head_dim=llama.H, mlp_dim=llama.F, rotary=llama.Rope(base=llama.BASE),
        norm_epsilon=llama.EPSILON, tie_embeddings=False,
    )  # fmt: skip
    params = jax.device_get(llama.our_params(llama.LLAMA))
    table = config.position_table(LENGTH)
    ids = np.array([1, *TEXT])
    documents = windows(ids, np.zeros((len(ids), 2), np.int32), LENGTH, STRIDE)
    scores = score.score(config, [Candidate(params, lambda _: table)], documents, LENGTH)
    counts = [int(document.answers[0, 1]) for document in documents]
    result = rows(nll=scores.nll[0], num_tokens=counts)
    return summaries.mean_nll(result), view_of("sliding_window").columns(result, None)[
        "window_mean_nll"
    ]


def test_perplexity_is_the_recorded_one_of_transformers():
    np.testing.assert_allclose(ours(), LITERALS, atol=1e-4)
