import dataclasses

import jax
import numpy as np
import pytest

from ropewalk.data.task import Document
from ropewalk.evals import score as score_lib
from ropewalk.evals.score import Candidate
from ropewalk.model import transformer
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model

pytestmark = pytest.mark.slow

CONFIG = small_model(vocab_size=5, num_layers=2, num_heads=2, mlp_dim=32, rotary=Rope(base=100.0))


def candidates(configs, seeds):
    """Each config's table, with the parameters of each seed."""
    tables = [config.position_table(16) for config in configs]
    return [
        Candidate(transformer.init(CONFIG, seed), lambda row_length, table=table: table)
        for table, seed in zip(tables, seeds, strict=True)
    ]


def document(tokens, *answers):
    tokens, answers = np.asarray(tokens, np.int32), np.array(answers, np.int32)
    return Document(tokens=tokens, answers=answers, number=0)


@jax.jit
def logits(params, tokens_BT):
    """Plain `[B, T, V]`, one member."""
    return transformer.document_logits(CONFIG, params, CONFIG.position_table(16), tokens_BT)


def test_teacher_forced_exact_match_is_greedy_decoding():
    """200 prompts, one in two answered as greedy decoding would, the others at random."""
    params = transformer.init(CONFIG, 7)
    random = np.random.default_rng(0)
    prompts = random.integers(0, 5, (200, 9))
    decoded = np.zeros((200, 12), int)
    decoded[:, :9] = prompts
    for size in (9, 10, 11):
        decoded[:, size] = np.asarray(logits(params, decoded))[:, size - 1].argmax(-1)
    greedy = decoded[:, 9:]
    answers = np.where(np.arange(200)[:, None] % 2, greedy, random.integers(0, 5, (200, 3)))
    answers[1::4, 2] = (answers[1::4, 2] + 1) % 5  # right but for the last id
    # An id after the answer changes nothing: it is not asked.
    tail = random.integers(0, 5, (200, 1))
    documents = [document(row, (9, 3, 4)) for row in np.hstack([prompts, answers, tail])]
    result = score_lib.score(CONFIG, candidates([CONFIG], [7]), documents, 16)
    expected = (greedy == answers).all(axis=1)
    assert 40 < expected.sum() < 160
    assert result.exact_match[0].tolist() == expected.tolist()
    assert result.first_token_correct[0].tolist() == (greedy == answers)[:, 0].tolist()
    assert ((result.rank[0] == 0) == result.first_token_correct[0]).all()


def test_nll_and_rank_are_those_of_the_logits():
    params = transformer.init(CONFIG, 3)
    tokens = np.array([1, 4, 2, 2, 0, 3, 1])
    values = np.asarray(logits(params, tokens[None])[0], np.float64)
    log_p = values - np.log(np.exp(values).sum(-1, keepdims=True))
    asked = [document(tokens, (3, 2, 1), (6, 1, 5))]
    result = score_lib.score(CONFIG, candidates([CONFIG], [3]), asked, 17)
    expected = [-(log_p[2, 2] + log_p[3, 0]) / 2, -log_p[5, 1]]
    np.testing.assert_allclose(result.nll[0], expected, atol=1e-5)
    ranks = [(values[2] > values[2, 2]).sum(), (values[5] > values[5, 1]).sum()]
    assert result.rank[0].tolist() == ranks


@pytest.mark.parametrize("shape", [None, (3, 4)])
def test_neighbors_padding_and_other_members_change_no_score(shape):
    """Also if candidates share a pass, as on an accelerator; the last is short of candidates."""
    random = np.random.default_rng(1)
    documents = [
        document(random.integers(0, 5, size), (size - 2, 2, 3), (2, 1, 1))
        for size in random.integers(5, 18, 30)
    ]
    windowed = dataclasses.replace(CONFIG, window=3)
    slow = dataclasses.replace(CONFIG, rotary=Rope(base=1e6))
    members = [(CONFIG, 0), (windowed, 0), (slow, 0), (CONFIG, 5)]
    models = candidates(*zip(*members, strict=True))
    together = score_lib.score(CONFIG, models, documents, 17, shape=shape)
    for index, (config, seed) in enumerate(members):
        alone = candidates([config], [seed])
        parts = [score_lib.score(CONFIG, alone, [source], 17) for source in documents]
        nll = np.concatenate([part.nll[0] for part in parts])
        np.testing.assert_allclose(together.nll[index], nll, atol=1e-5)
        for name in ("exact_match", "first_token_correct", "rank"):
            expected = np.concatenate([getattr(part, name)[0] for part in parts])
            assert getattr(together, name)[index].tolist() == expected.tolist(), name
    # Members do differ, so that a mix-up would show.
    assert len({row.tobytes() for row in together.nll}) == 4


def test_a_model_that_diverged_is_right_about_nothing():
    nan, right, rank = np.full((1, 4), np.nan), np.ones((1, 4), bool), np.zeros((1, 4), int)
    result = score_lib.score_answers(nan, right, rank, np.array([[2, 2, 1]]))
    assert not result.exact_match.any() and not result.first_token_correct.any()
    assert result.rank.min() > 10**6


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_a_likelihood_that_is_not_finite_changes_no_other_answer(odd):
    """Nor does its own answer get a number, which a file of rows cannot hold."""
    nll = np.array([[1.0, odd, 3.0, 4.0, 6.0]])
    right, rank = np.ones((1, 5), bool), np.zeros((1, 5), int)
    answers = np.array([[1, 1, 1], [2, 2, 1], [4, 2, 1], [1, 3, 1], [4, 1, 1]])
    result = score_lib.score_answers(nll, right, rank, answers)
    np.testing.assert_array_equal(result.nll, [[1, np.nan, 5, np.nan, 4]])
    assert result.exact_match.tolist() == [[True, False, True, False, True]]


def test_logits_are_products_in_full_precision():
    """A probe's as those of evaluation: by default accelerators multiply float32 in fewer bits."""
    params, x_BTD = transformer.init(CONFIG, 0), np.zeros((1, 2, CONFIG.embed_dim), np.float32)
    program = jax.make_jaxpr(lambda x: transformer.unembed(CONFIG, params, x))(x_BTD)
    [product] = [e for e in program.eqns if e.primitive.name == "dot_general"]
    assert set(product.params["precision"]) == {jax.lax.Precision.HIGHEST}
