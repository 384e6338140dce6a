"""What a token far back does to an answer: nothing beyond the windows, and what it does is felt."""

import jax
import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import transformer
from probes import capture
from probes.asked.receptive_field import ReceptiveField, receptive_field
from probes.inside import Capture
from probes.questions import Questions

LENGTH, ROWS = 40, 6
pytestmark = pytest.mark.usefixtures("unoptimized")
# The last question of each row is looked at: at 38, or 30.
ASKED = Questions(
    row_Q=np.repeat(np.arange(ROWS), 2),
    query_Q=np.tile([12, 38, 9, 30], ROWS // 2),
    key_Q=np.tile([3, 20, 5, 2], ROWS // 2),
    pairs_BP=np.tile([3, 20], (ROWS, 1)),
)


def random_model(**model) -> LoadedRun:
    """Every parameter is random; two layers, unless said."""
    config = change(find_config("tiny"), model=model)
    leaves, tree = jax.tree.flatten(transformer.init(config.model, 0))
    random = np.random.default_rng(1)
    leaves = [leaf + 0.2 * random.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return LoadedRun(RunDirectory("nowhere"), 0, config, jax.tree.unflatten(tree, leaves))


def inside(**model) -> Capture:
    """Random rows in a random model."""
    run = random_model(**model)
    shape = ROWS, LENGTH
    return capture(run, np.random.default_rng(2).integers(run.config.model.vocab_size, size=shape))


def felt(found: ReceptiveField) -> np.ndarray:
    """By whole distances: they all are, up to 12 tokens."""
    assert found.distance_X[:12].tolist() == list(range(1, 13))
    return found.felt_3X[0, :12]


@pytest.mark.parametrize(
    ("model", "farthest"), [(dict(window=5), 8), (dict(window=5, shift_keys=True), 10)]
)
def test_nothing_is_felt_beyond_all_windows(model, farthest):
    found = receptive_field(inside(**model), ASKED)
    assert found.limit == farthest
    felt_12 = felt(found)
    assert (felt_12[:farthest] > 0).all()
    assert (felt_12[farthest:] == 0).all() and (found.felt_3X[0, 12:] == 0).all()
    assert found.within_3P.max() <= farthest
    kl_K = found.kl_3K[0]
    assert np.abs(kl_K[found.kept_K > farthest]).max() < 1e-5
    assert (kl_K[found.kept_K <= farthest] > 1e-3).all()


def test_without_windows_every_token_is_felt():
    found = receptive_field(inside(), ASKED)
    assert found.limit == np.inf
    assert (found.felt_3X[0] > 0).all()
    assert found.kl_3K[0, -1] == 0 and (found.kl_3K[0, :-1] > 0).all()


def test_what_is_cut_off_is_as_if_it_had_never_been():
    """Keys are shifted: a first token that still knew the one before it would tell."""
    run, captured = random_model(shift_keys=True), inside(shift_keys=True)
    found = receptive_field(captured, ASKED)
    kl = []
    for row, query in enumerate([38, 30] * (ROWS // 2)):
        tokens_1T = captured.tokens_BT[[row], : query + 1]
        whole_V, cut_V = (
            jax.nn.log_softmax(run.logits(tokens)[0, -1])
            for tokens in (tokens_1T, tokens_1T[:, -8:])
        )
        kl.append((np.exp(whole_V) * (whole_V - cut_V)).sum())
    assert found.kl_3K[0, found.kept_K == 8] == pytest.approx(np.mean(kl), rel=1e-3)


def test_where_attention_finds_nothing_only_the_query_is_felt():
    captured = inside()
    attention = captured.params["blocks"]["attention"]
    attention["out"] = np.zeros_like(attention["out"])
    found = receptive_field(captured, ASKED)
    assert (found.felt_3X[0] == 0).all() and (found.within_3P == 0).all()
    np.testing.assert_allclose(found.kl_3K, 0, atol=1e-6)
    assert found.enough == 1


def test_equal_weights_on_equal_tokens_are_felt_alike_from_everywhere():
    captured = inside(num_layers=1)
    attention = captured.params["blocks"]["attention"]
    attention["query"] = np.zeros_like(attention["query"])
    attention["value"] = 1e4 * attention["value"]  # beside which the query itself is nothing
    captured.tokens_BT[:] = captured.tokens_BT[:, :1]
    found = receptive_field(captured, ASKED)
    np.testing.assert_allclose(found.felt_3X[0], 1, rtol=1e-2)
    np.testing.assert_allclose(found.within_3P[0], [17, 31], atol=1)
    # Nor does it matter how many of them there are.
    np.testing.assert_allclose(found.kl_3K, 0, atol=1e-5)


def test_a_sure_model_feels_as_much():
    run, captured = random_model(num_layers=1), inside(num_layers=1)
    # What comes after the question is what the model says.
    said_BT = run.logits(captured.tokens_BT).argmax(axis=-1)
    captured.tokens_BT[:, -1] = said_BT[np.arange(ROWS), [38, 30] * (ROWS // 2)]
    asked = ASKED._replace(key_Q=np.full(2 * ROWS, LENGTH - 1))
    unsure = receptive_field(captured, asked)
    captured.params["final_norm"]["scale"] = 100 * captured.params["final_norm"]["scale"]
    sure = receptive_field(captured, asked)
    assert unsure.kl_3K[0, 0] < 10 < 100 < sure.kl_3K[0, 0]
    assert (sure.felt_3X[0] > 0).all()
    assert 0.5 < sure.within_3P[0, 0] / unsure.within_3P[0, 0] < 2
