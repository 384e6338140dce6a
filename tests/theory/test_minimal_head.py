"""The minimal head: its loss, and stored forecasts; test_forecast.py has known accuracies."""

import jax
import numpy as np
import pytest

from ropewalk.configs.changes import change
from ropewalk.model.rotary.rope import Rope
from ropewalk.studies import load_cards
from ropewalk.studies.capability import forecasts
from ropewalk.theory import minimal_head
from ropewalk.theory.forecast import forecast
from ropewalk.theory.minimal_head import Layouts, Positions, Training

BASE_10 = Rope(base=10.0).inv_freq(16)


def test_the_loss_is_the_cross_entropy_of_answers():
    """Scores, softmax and logits of numpy, in float64 and with complex numbers."""
    training = Training(
        learning_rates=np.ones(1), batch_size=3, embed_dim=6, num_keys=5, num_values=4,
        aligned=False,
    )  # fmt: skip
    layouts = Layouts.from_positions(
        [
            (np.array([[1, 5], [9, 13]]), np.array([3, 7])),
            (np.array([[2], [8]]), np.array([11])),
            (np.array([[1, 3, 6], [10, 8, 14]]), np.array([], int)),
        ],
        15,
    )
    scale_T11 = np.linspace(1, 2, 17)[:, None, None]
    positions = Positions(
        np.stack([BASE_10[:2], BASE_10[2:4]]).astype(np.float32),
        np.broadcast_to(scale_T11 / 2, (17, 2, 2)).astype(np.float32),
        ~np.isin(np.arange(17), (3, 4)),
    )
    random = np.random.default_rng(0)
    params = minimal_head.init(positions, training, random)
    batch = minimal_head.draw(layouts, training, np.arange(3), random)
    x = params["embedding"] / np.sqrt(np.square(params["embedding"]).mean(1, keepdims=True) + 1e-5)
    codes = [(x @ params[n]).reshape(5, 2, 2, 2) @ [1, 1j] for n in ("query", "key")]
    nats = []
    for document, question in zip(*np.nonzero(batch.query_BQ), strict=True):
        at, values = batch.query_BQ[document, question], np.zeros(4)
        scores = np.full((2, batch.key_BP.shape[1]), -np.inf)
        for place, key_at in enumerate(batch.key_BP[document]):
            if key_at and at >= key_at and at - key_at not in (3, 4):
                query = codes[0][batch.query_id_BQ[document, question]]
                turned = np.exp(1j * (at - key_at) * positions.inv_freq_NR)
                key = codes[1][batch.key_id_BP[document, place]]
                score = (query * key.conj() * turned).real.sum(axis=-1)
                scores[:, place] = score * scale_T11[at, 0, 0] / 2
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        np.add.at(values, batch.value_BP[document], params["gain"] @ weights)
        right = values[batch.target_BQ[document, question]]
        nats.append(np.log(np.exp(values).sum()) - right)
    loss = jax.jit(minimal_head.loss_of, static_argnums=3)(params, batch, positions, 4)
    assert len(nats) == 6 and float(loss) == pytest.approx(np.mean(nats), rel=1e-4)


def test_fixed_parameters_do_not_train():
    training = Training(learning_rates=np.ones(1), batch_size=1, rates={"query": 0.0})
    rates = minimal_head._settings(training, np.ones(1))["rates"]
    assert rates == {"embedding": 1, "query": 0, "key": 1, "gain": 1, "frequency": 1}


@pytest.mark.long  # of base 10
@pytest.mark.parametrize(
    ("card", "member"), [("C18", "all-frozen"), ("C17", "heads=1"), ("C1", "heads=4")]
)
def test_forecasts_are_those_of_gradients_written_by_hand(card, member):
    """The stored forecasts are older than this code: frozen, learned frequencies, heads."""
    config = load_cards("capability")[card].configs()[f"base=10,{member}"]
    stored = forecasts.read(forecasts.RECALL)[card][f"base=10,{member}"]
    tokens, record = min(stored.items(), key=lambda item: int(item[0]))
    num_steps = int(tokens) // (config.data.batch_size * config.data.context_length)
    config = change(config, train=dict(num_steps=num_steps))
    result = forecast(config, range(2))
    assert result.estimate.mean_accuracy == pytest.approx(record["mean_accuracy"], abs=0.04)
    bins = {item.low: item.accuracy for item in result.estimate.bins}
    assert [bins[low] for low, _ in record["bins"]] == pytest.approx(
        [accuracy for _, accuracy in record["bins"]], abs=0.15
    )
    if "inv_freq" in record:
        slow = [np.sort(x, axis=None)[:8] for x in (record["inv_freq"][0], result.inv_freq_SNR[0])]
        assert slow[1] == pytest.approx(slow[0], rel=0.03)
