"""The minimal head: simulated key-value recall of one layer of heads, and of nothing else.

Training minimizes the mean loss over the keys and the distances that it meets, for as long as it
is given. This simulation does the same with the smallest model that can recall: N heads over the
keys of a document, without text, MLP or residual stream. Let x_a be the normalized embedding of
key id a. Head n scores a query of key a against key b, m tokens before it, with

    s_n(a, b, m) = scale_n / sqrt(2R) Re sum_i q_ni(a) conj(k_ni(b)) exp(i m inv_freq_ni),
    q_n(a) = Wq_n x_a,   k_n(b) = Wk_n x_b,   x_a = embedding_a / rms(embedding_a),

where complex numbers are pairs of features. A head attends to the keys before the query by the
softmax of its scores, heads add up with a learned gain each, and every key votes for its value:

    logit(u) = sum_n gain_n sum_{keys j of value u} attention_n(j).

The loss is the cross-entropy of the right value. Embeddings, W and gains train by AdamW with the
width, learning rates, batches and number of updates of the forecast model. No constant is fitted to
a measurement; docs/theory.md lists what the simulation leaves out.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

_GAIN = 8.0  # sum of the gains at the start; perfect attention then gives .98 to the right value
_NORM_EPSILON = 1e-5  # of the normalization
_HIDDEN = -1e9  # score of a key that a query does not attend to
_CHUNK = 64  # updates whose documents are drawn at once
_TEST_DOCUMENTS = 32  # tested at once

Params = dict[str, jax.Array]  # of one seed, or stacked over seeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layouts:
    """Positions of keys and questions in D documents, padded with 0.

    Attributes:
      key_DP: int32, position of the value after each key: what a query attends to.
      pair_DP: int32, number of each key's pair in its document. Pairs with a question come first.
      query_DQ: int32, position of the question of pairs 0, 1, ...
      distance_DQ: int32, tokens from a question to the first occurrence of its value.
      length: tokens of a document.
    """

    key_DP: np.ndarray
    pair_DP: np.ndarray
    query_DQ: np.ndarray
    distance_DQ: np.ndarray
    length: int

    @classmethod
    def from_positions(
        cls, documents: Iterable[tuple[np.ndarray, np.ndarray]], length: int
    ) -> "Layouts":
        """Make layouts from the positions of keys; each key is followed by its value.

        Args:
          documents: for each document, int `[2, questions]`, the first and second position of the
            keys with a question, and int `[others]`, the positions of the other keys.
          length: tokens of a document.
        """
        rows = []
        for twice, once in documents:
            first, second = twice
            pairs = np.arange(len(first) + len(once))
            keys = np.concatenate([first, once, second]) + 1
            pairs = np.concatenate([pairs, pairs[: len(first)]])
            rows.append((keys, pairs, second, second - (first + 1)))
        names = ("key_DP", "pair_DP", "query_DQ", "distance_DQ")
        columns = (
            itertools.zip_longest(*column, fillvalue=0) for column in zip(*rows, strict=True)
        )
        arrays = (np.array(list(column), np.int32).T for column in columns)
        return cls(**dict(zip(names, arrays, strict=True)), length=length)

    def __len__(self) -> int:
        return len(self.key_DP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Training of a model, as far as recall depends on it.

    Attributes:
      learning_rates: learning rate of every update.
      batch_size: documents per update, on average.
      beta1, beta2, weight_decay: of AdamW; gains do not decay.
      embed_dim: width of the embedding.
      num_keys, num_values: ids that keys and values are drawn from.
      aligned: whether key projections start equal to query projections.
      rates: learning rate of parameters as a multiple of `learning_rates`, by name as in `init`;
        1 if it is not given.
    """

    learning_rates: np.ndarray
    batch_size: float
    beta1: float = 0.9
    beta2: float = 0.98
    weight_decay: float = 0.1
    embed_dim: int = 128
    num_keys: int = 64
    num_values: int = 64
    aligned: bool = True
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Positions(NamedTuple):
    """Inputs of a layer that depend on positions, float32, for documents of up to T - 2 tokens.

    Attributes:
      inv_freq_NR: radians per token, of each head; 0 for unrotated pairs.
      scale_TNR: what multiplies a query at each position.
      is_visible_T: whether a query attends to a key so many tokens before it.
      offset_unit_NR: what one unit of a trained offset adds to a frequency, radians per token;
        None: frequencies do not train.
    """

    inv_freq_NR: np.ndarray
    scale_TNR: np.ndarray
    is_visible_T: np.ndarray
    offset_unit_NR: np.ndarray | None = None


class Accuracy(NamedTuple):
    """Answers of S simulated seeds to the same A questions.

    Attributes:
      distance_A: int, tokens.
      document_A: int, number of the document.
      is_correct_SA: bool.
      inv_freq_SNR: radians per token, after training.
    """

    distance_A: np.ndarray
    document_A: np.ndarray
    is_correct_SA: np.ndarray
    inv_freq_SNR: np.ndarray


def simulate(
    positions: Positions,
    layouts: Layouts,
    training: Training,
    seeds: Sequence[int],
    *,
    test: Layouts,
) -> Accuracy:
    """Train the minimal head on random keys at the places of `layouts`; test it on those of `test`.

    Equal arguments give equal results.

    Args:
      positions: frequencies, scale and visible distances of the heads.
      layouts: documents of training; each update draws some, with new keys and values.
      training: optimizer and sizes.
      seeds: each decides the parameters at the start, the documents and their keys. Seeds train at
        once, which is faster than one after another.
      test: documents of the test, of the same length.
    """
    randoms = [np.random.Generator(np.random.Philox(seed)) for seed in seeds]
    params = _stack([init(positions, training, random) for random in randoms])
    # Updates have `batch_size` documents on average; those without any are left out.
    ends = np.floor(np.arange(len(training.learning_rates) + 1) * training.batch_size + 1e-9)
    ends = ends.astype(int)
    steps = np.flatnonzero(np.diff(ends))
    widest = int(np.diff(ends).max(initial=0))
    settings = _settings(training, training.learning_rates[steps])
    state = jax.vmap(lambda params: _optimizer(settings).init(params))(params)
    for some in np.split(steps, range(_CHUNK, len(steps), _CHUNK)) if len(steps) else ():
        first, last = ends[some[0]], ends[some[-1] + 1]
        numbers = (random.integers(len(layouts), size=last - first) for random in randoms)
        pairs = zip(numbers, randoms, strict=True)
        documents = [draw(layouts, training, index_B, random) for index_B, random in pairs]
        # `[S, C, B]`: a short update is filled with documents that do not count.
        row_CB = (ends[some] - first)[:, None] + np.arange(widest)
        counts_CB = row_CB < (ends[some + 1] - first)[:, None]
        batch = Documents(*(x[:, np.where(counts_CB, row_CB, 0)] for x in _stack(documents)))
        query_SCBQ = batch.query_BQ * counts_CB[:, :, None]  # 0: no question
        batch = batch._replace(query_BQ=query_SCBQ)
        params, state = _train(params, state, batch, positions, settings, training.num_values)
    index_D = np.arange(len(test))
    documents = _stack([draw(test, training, index_D, random) for random in randoms])
    is_correct = []
    for first in range(0, len(test), _TEST_DOCUMENTS):
        part = Documents(*(x[:, first : first + _TEST_DOCUMENTS] for x in documents))
        logits_SBQU = _predict(params, part, positions, training.num_values)
        is_correct.append(np.asarray(logits_SBQU.argmax(axis=-1) == part.target_BQ))
    is_asked_DQ = test.query_DQ > 0
    inv_freq_SNR = jax.vmap(lambda params: inv_freq_of(params, positions))(params)
    return Accuracy(
        test.distance_DQ[is_asked_DQ],
        np.nonzero(is_asked_DQ)[0],
        np.concatenate(is_correct, axis=1)[:, is_asked_DQ],
        np.asarray(inv_freq_SNR, np.float64),
    )


def _stack(trees: Sequence[Any]) -> Any:
    """Stack the arrays of each seed."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


class Documents(NamedTuple):
    """B documents with random keys and values.

    Attributes:
      key_BP, query_BQ: as in `Layouts`.
      key_id_BP, value_BP: id of each key, and number of its value.
      query_id_BQ, target_BQ: key id and right value of each question.
    """

    key_BP: np.ndarray
    query_BQ: np.ndarray
    key_id_BP: np.ndarray
    value_BP: np.ndarray
    query_id_BQ: np.ndarray
    target_BQ: np.ndarray


def draw(
    layouts: Layouts, training: Training, index_B: np.ndarray, random: np.random.Generator
) -> Documents:
    """Draw documents with different keys for the pairs of each, and any values.

    Args:
      layouts: positions to choose from.
      training: numbers of keys and values.
      index_B: numbers of the layouts.
      random: of one seed.
    """
    count = len(index_B)
    num_pairs = int(layouts.pair_DP.max()) + 1
    order = random.random((count, training.num_keys), dtype=np.float32).argsort(axis=1)
    key_id_BJ = order[:, :num_pairs].astype(np.int32)
    value_BJ = random.integers(training.num_values, size=(count, num_pairs)).astype(np.int32)
    pair_BP, query_BQ = layouts.pair_DP[index_B], layouts.query_DQ[index_B]
    return Documents(
        layouts.key_DP[index_B],
        query_BQ,
        np.take_along_axis(key_id_BJ, pair_BP, axis=1),
        np.take_along_axis(value_BJ, pair_BP, axis=1),
        key_id_BJ[:, : query_BQ.shape[1]],
        value_BJ[:, : query_BQ.shape[1]],
    )


def init(positions: Positions, training: Training, random: np.random.Generator) -> Params:
    """Draw the parameters of one seed.

    Returns:
      With F = 2 N R features, "embedding" `[V, E]`, "query" and "key" `[E, F]`; "gain" `[N]`;
      "frequency" `[N, R]`, in units of `Positions.offset_unit_NR`, if frequencies train.
    """
    N, R = positions.inv_freq_NR.shape
    V, E = training.num_keys, training.embed_dim
    params = {"embedding": random.normal(size=(V, E)) / np.sqrt(E)}
    params["query"] = random.normal(size=(E, 2 * N * R)) / np.sqrt(E)
    params["key"] = params["query"]
    if not training.aligned:
        params["key"] = random.normal(size=(E, 2 * N * R)) / np.sqrt(E)
    params["gain"] = np.full(N, _GAIN / N)
    if positions.offset_unit_NR is not None:
        params["frequency"] = np.zeros((N, R))
    return {name: value.astype(np.float32) for name, value in params.items()}


def inv_freq_of(params: Params, positions: Positions) -> jax.Array:
    """Return the frequencies of one seed, `[N, R]`, radians per token."""
    if positions.offset_unit_NR is None:
        return jnp.asarray(positions.inv_freq_NR)
    return params["frequency"] * positions.offset_unit_NR + positions.inv_freq_NR


def _codes(params: Params, positions: Positions) -> tuple[Any, Any]:
    """Return the codes of queries and keys, `[V, N, R, 2]`, before rotation."""
    square_V1 = jnp.square(params["embedding"]).mean(axis=-1, keepdims=True)
    x_VE = params["embedding"] * jax.lax.rsqrt(square_V1 + _NORM_EPSILON)
    shape = len(x_VE), *positions.inv_freq_NR.shape, 2
    return (x_VE @ params["query"]).reshape(shape), (x_VE @ params["key"]).reshape(shape)


def _multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply complex numbers `[..., 2]`, real and imaginary part."""
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    return jnp.stack([real, a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], axis=-1)


def logits_of(
    params: Params, documents: Documents, positions: Positions, num_values: int
) -> jax.Array:
    """Return the logits of all values for each question of one seed, `[B, Q, U]`."""
    query_VNR2, key_VNR2 = _codes(params, positions)
    angle_TNR = jnp.arange(len(positions.scale_TNR))[:, None, None] * inv_freq_of(params, positions)
    phase_TNR2 = jnp.stack([jnp.cos(angle_TNR), jnp.sin(angle_TNR)], axis=-1)
    query_BQ, key_BP = documents.query_BQ, documents.key_BP
    scaled_TNR2 = phase_TNR2 * positions.scale_TNR[..., None]
    query_BQNR2 = _multiply(query_VNR2[documents.query_id_BQ], scaled_TNR2[query_BQ])
    key_BPNR2 = _multiply(key_VNR2[documents.key_id_BP], phase_TNR2[key_BP])
    score_BNQP = jnp.einsum("bqnrc,bpnrc->bnqp", query_BQNR2, key_BPNR2)
    distance_BQP = query_BQ[:, :, None] - key_BP[:, None, :]
    is_visible_BQP = positions.is_visible_T[jnp.maximum(distance_BQP, 0)]
    is_visible_BQP &= (distance_BQP >= 0) & (key_BP > 0)[:, None, :]
    is_visible_B1QP = is_visible_BQP[:, None]
    attention_BNQP = jax.nn.softmax(jnp.where(is_visible_B1QP, score_BNQP, _HIDDEN))
    attention_BNQP *= is_visible_B1QP  # a window may hide all keys
    mixed_BQP = jnp.einsum("n,bnqp->bqp", params["gain"], attention_BNQP)
    return mixed_BQP @ jax.nn.one_hot(documents.value_BP, num_values)


def loss_of(
    params: Params, documents: Documents, positions: Positions, num_values: int
) -> jax.Array:
    """Return the mean cross-entropy of one seed's questions, nats."""
    logits_BQU = logits_of(params, documents, positions, num_values)
    losses_BQ = optax.softmax_cross_entropy_with_integer_labels(logits_BQU, documents.target_BQ)
    return losses_BQ.mean(where=documents.query_BQ > 0)


def _settings(training: Training, learning_rates: np.ndarray) -> dict[str, Any]:
    """Return the numbers that the optimizer reads; equal programs serve all of them."""
    names = "beta1", "beta2", "weight_decay"
    settings: dict[str, Any] = {name: np.float32(getattr(training, name)) for name in names}
    rates: dict[str, float] = dict.fromkeys(("embedding", "query", "key", "gain", "frequency"), 1.0)
    rates.update(training.rates)
    settings["rates"] = {name: np.float32(rate) for name, rate in rates.items()}
    return settings | {"learning_rates": np.append(learning_rates, 0).astype(np.float32)}


def _decays(params: Any) -> dict[str, bool]:
    return {name: name not in ("gain", "frequency") for name in params}


def _optimizer(settings: dict[str, Any]) -> optax.GradientTransformation:
    """Return AdamW (arXiv 1711.05101); gains and frequencies do not decay."""
    return optax.adamw(
        lambda count: settings["learning_rates"][count],
        b1=settings["beta1"],
        b2=settings["beta2"],
        weight_decay=settings["weight_decay"],
        mask=_decays,
    )


@functools.partial(jax.jit, static_argnames=("num_values",))
def _train(
    params: Params,
    state: Any,
    documents: Documents,
    positions: Positions,
    settings: dict[str, Any],
    num_values: int,
) -> tuple[Params, Any]:
    """Update all seeds; `documents` are `[S, C, B, ...]`, those of C updates."""

    def update(carry: tuple, batch: Documents) -> tuple:
        params, state = carry
        gradients = jax.grad(loss_of)(params, batch, positions, num_values)
        updates, state = _optimizer(settings).update(gradients, state, params)
        rate = {name: settings["rates"][name] for name in params}
        updates = jax.tree.map(jnp.multiply, rate, updates)
        return (optax.apply_updates(params, updates), state), None

    def train(params: Params, state: Any, batches: Documents) -> tuple:
        carry, _ = jax.lax.scan(update, (params, state), batches)
        return carry

    return jax.vmap(train)(params, state, documents)


@functools.partial(jax.jit, static_argnames=("num_values",))
def _predict(
    params: Params, documents: Documents, positions: Positions, num_values: int
) -> jax.Array:
    return jax.vmap(lambda p, d: logits_of(p, d, positions, num_values))(params, documents)
