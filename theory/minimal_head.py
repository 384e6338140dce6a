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
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_GAIN = 8.0  # sum of the gains at the start; perfect attention then gives .98 to the right value
_EPSILON, _NORM_EPSILON = 1e-8, 1e-5  # of Adam and of the normalization
_HIDDEN = -1e9  # score of a key that a query does not attend to
_CHUNK = 64  # updates whose documents are drawn at once

Params = dict[str, np.ndarray]


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
        arrays = dict(zip(names, map(_pad, zip(*rows, strict=True)), strict=True))
        return cls(**arrays, length=length)

    def __len__(self) -> int:
        return len(self.key_DP)


def _pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    padded = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded


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
      frozen: replace x W by random codes of unit modulus, k(b) = c_b and q(a) = z c_a, of which
        only the diagonal z trains, so that the other keys are independent noise.
      fixed: parameters that do not train, of "embedding", "query" and "key".
      frequency_rate: learning rate of learned frequencies as a multiple of `learning_rates`.
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
    frozen: bool = False
    fixed: tuple[str, ...] = ()
    frequency_rate: float = 0.0


class Positions(NamedTuple):
    """Inputs of a layer that depend on positions.

    Attributes:
      inv_freq_NR: float64, radians per token, of each head; 0 for unrotated pairs.
      logit_scale: factor of the scores; broadcast to `[positions, N, R]`, by the query's position.
      window: number of tokens that a query attends to, itself included; None: all before it.
      masked_distances: first and last of the distances that are hidden.
      offset_unit_NR: what one unit of a trained offset adds to a frequency, radians per token;
        None: frequencies do not train.
    """

    inv_freq_NR: np.ndarray
    logit_scale: np.ndarray | float = 1.0
    window: int | None = None
    masked_distances: tuple[int, int] | None = None
    offset_unit_NR: np.ndarray | None = None

    def is_visible(self, distance: np.ndarray) -> np.ndarray:
        """Return whether queries attend to keys at these distances, bool."""
        visible = distance >= 0
        if self.window is not None:
            visible &= distance < self.window
        if self.masked_distances is not None:
            low, high = self.masked_distances
            visible &= (distance < low) | (distance > high)
        return visible


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
    longest = max(layouts.length, test.length)
    heads = Heads(positions, training, randoms, longest=longest)
    adam, rates = _Adam(heads.params, training), training.learning_rates
    ends = np.floor(np.arange(len(rates) + 1) * training.batch_size + 1e-9).astype(int)
    for first in range(0, len(rates), _CHUNK):
        last = min(first + _CHUNK, len(rates))
        index_SB = [r.integers(len(layouts), size=ends[last] - ends[first]) for r in randoms]
        documents = _Documents.draw(layouts, np.array(index_SB), training, randoms)
        for step in range(first, last):
            if ends[step] < ends[step + 1]:
                part = slice(ends[step] - ends[first], ends[step + 1] - ends[first])
                _, gradients = heads.loss_and_gradients(documents.batch(part, positions))
                adam.update(heads.params, gradients, rates[step])
                if "frequency" in gradients:
                    heads.set_phases()

    index_SB = np.tile(np.arange(len(test)), (len(seeds), 1))
    documents = _Documents.draw(test, index_SB, training, randoms)
    is_correct = []
    for first in range(0, len(test), 32):
        batch = documents.batch(slice(first, first + 32), positions)
        is_right_BQ = heads.logits(batch).argmax(axis=-1) == batch.target_BQ
        is_correct.append(is_right_BQ.reshape(len(seeds), -1, is_right_BQ.shape[1]))
    is_asked_DQ = test.query_DQ > 0
    return Accuracy(
        test.distance_DQ[is_asked_DQ],
        np.nonzero(is_asked_DQ)[0],
        np.concatenate(is_correct, axis=1)[:, is_asked_DQ],
        heads.inv_freq(),
    )


class Batch(NamedTuple):
    """Documents of all seeds, B in total, the first seed's first.

    Attributes:
      key_BP, query_BQ: as in `Layouts`.
      key_id_BP, value_BP: id of each key, and number of its value. Key ids of seed s begin at s V.
      query_id_BQ, target_BQ: key id and right value of each question.
      is_visible_BQP: whether a question's query attends to a key.
    """

    key_BP: np.ndarray
    query_BQ: np.ndarray
    key_id_BP: np.ndarray
    value_BP: np.ndarray
    query_id_BQ: np.ndarray
    target_BQ: np.ndarray
    is_visible_BQP: np.ndarray


class _Documents(NamedTuple):
    """Layouts with random keys and values; J is the largest number of pairs."""

    layouts: Layouts
    index_SB: np.ndarray
    key_id_SBJ: np.ndarray
    value_SBJ: np.ndarray

    @classmethod
    def draw(
        cls,
        layouts: Layouts,
        index_SB: np.ndarray,
        training: Training,
        randoms: Sequence[np.random.Generator],
    ) -> "_Documents":
        """Draw different keys for the pairs of a document, and any values."""
        num_pairs, count = int(layouts.pair_DP.max()) + 1, index_SB.shape[1]
        keys, values = [], []
        for seed, random in enumerate(randoms):
            order = random.random((count, training.num_keys), dtype=np.float32).argsort(axis=1)
            keys.append(order[:, :num_pairs] + seed * training.num_keys)
            values.append(random.integers(training.num_values, size=(count, num_pairs)))
        return cls(layouts, index_SB, np.stack(keys), np.stack(values))

    def batch(self, part: slice, positions: Positions) -> Batch:
        """Return some of each seed's documents."""
        index_B = self.index_SB[:, part].ravel()
        key_id_BJ, value_BJ = (
            array[:, part].reshape(len(index_B), -1) for array in (self.key_id_SBJ, self.value_SBJ)
        )
        layouts, pair_BP = self.layouts, self.layouts.pair_DP[index_B]
        key_BP, query_BQ = layouts.key_DP[index_B], layouts.query_DQ[index_B]
        distance_BQP = query_BQ[:, :, None] - key_BP[:, None, :]
        is_visible_BQP = positions.is_visible(distance_BQP) & (key_BP > 0)[:, None, :]
        return Batch(
            key_BP=key_BP,
            query_BQ=query_BQ,
            key_id_BP=np.take_along_axis(key_id_BJ, pair_BP, axis=1),
            value_BP=np.take_along_axis(value_BJ, pair_BP, axis=1),
            query_id_BQ=key_id_BJ[:, : query_BQ.shape[1]],
            target_BQ=value_BJ[:, : query_BQ.shape[1]],
            is_visible_BQP=is_visible_BQP,
        )


class Heads:
    """N heads of one layer, for each of S seeds, with gradients written by hand.

    Attributes:
      params: with F = 2 N R features, "embedding" `[S, V, E]` and "projection" `[S, 2, E, F]`
        (queries, keys), or for frozen codes "weight" `[S, F]`; "gain" `[S, N]`; "frequency"
        `[S, N, R]`, in units of `Positions.offset_unit_NR`, if frequencies train.
    """

    def __init__(
        self,
        positions: Positions,
        training: Training,
        randoms: Sequence[np.random.Generator],
        *,
        longest: int,
        dtype: Any = np.float32,
    ):
        """Draw the parameters of each seed; arguments as for `simulate`."""
        N, R = positions.inv_freq_NR.shape
        V, E, F = training.num_keys, training.embed_dim, 2 * N * R
        self.num_keys, self.num_values, self.num_heads = V, training.num_values, N
        self.dtype, self.complex = dtype, np.result_type(dtype, np.complex64)
        self.positions, self.longest = positions, longest

        def normal(*shape):
            return np.stack([random.normal(size=shape) for random in randoms]) / np.sqrt(E)

        self.codes_SVF, params = None, {}
        if training.frozen:
            angles_SVX = np.stack([random.random((V, N * R)) for random in randoms]) * 2 * np.pi
            self.codes_SVF = np.exp(1j * angles_SVX).astype(self.complex)
            params["weight"] = np.ones((len(randoms), N * R), complex).view(float)
        else:
            params["embedding"] = normal(V, E)
            query_SEF = normal(E, F)
            key_SEF = query_SEF if training.aligned else normal(E, F)
            params["projection"] = np.stack([query_SEF, key_SEF], axis=1)
        params["gain"] = np.full((len(randoms), N), _GAIN / N)
        if positions.offset_unit_NR is not None:
            params["frequency"] = np.zeros((len(randoms), N, R))
        self.params: Params = {name: value.astype(dtype) for name, value in params.items()}
        self.set_phases()

    def inv_freq(self) -> np.ndarray:
        """Return the frequencies of all seeds, float64 `[S, N, R]`, radians per token."""
        start_NR, unit_NR = self.positions.inv_freq_NR, self.positions.offset_unit_NR
        num_seeds = len(self.params["gain"])
        if unit_NR is None:
            return np.broadcast_to(start_NR, (num_seeds, *start_NR.shape))
        return start_NR + unit_NR * self.params["frequency"]

    def set_phases(self) -> None:
        """Compute the rotation of every position; seeds share it unless frequencies train."""
        inv_freq_SNR = self.inv_freq()
        if "frequency" not in self.params:
            inv_freq_SNR = inv_freq_SNR[:1]
        # A key's position is at most one above the last query's.
        position_T11 = np.arange(self.longest + 2)[:, None, None]
        phase_STNR = np.exp(1j * position_T11 * inv_freq_SNR[:, None])
        scaled_STNR = phase_STNR * self.positions.logit_scale / np.sqrt(2 * phase_STNR.shape[-1])
        self.query_phase_STNR = scaled_STNR.astype(self.complex)
        self.key_phase_STNR = phase_STNR.astype(self.complex)

    def logits(self, batch: Batch) -> np.ndarray:
        """Return the logits of all values for each question, `[B, Q, U]`."""
        return self._forward(batch)[0]

    def loss_and_gradients(self, batch: Batch) -> tuple[np.ndarray, Params]:
        """Return the mean cross-entropy of each seed's questions, `[S]`, and its gradients."""
        logits_BQU, attention_BNQP, gain_BN, votes_BPU, rotated = self._forward(batch)
        num_seeds, num_documents = len(self.params["gain"]), len(logits_BQU)
        is_asked_BQ = batch.query_BQ > 0
        count_S = is_asked_BQ.reshape(num_seeds, -1).sum(axis=1)
        weight_BQ = is_asked_BQ / np.repeat(count_S, num_documents // num_seeds)[:, None]
        weight_BQ = weight_BQ.astype(self.dtype)

        # The cross-entropy's gradient is softmax minus one-hot target.
        grad_BQU = np.exp(logits_BQU - logits_BQU.max(axis=-1, keepdims=True))
        grad_BQU /= grad_BQU.sum(axis=-1, keepdims=True)
        target_BQ1 = batch.target_BQ[:, :, None]
        right_BQ1 = np.take_along_axis(grad_BQU, target_BQ1, axis=2)
        np.put_along_axis(grad_BQU, target_BQ1, right_BQ1 - 1, axis=2)
        grad_BQU *= weight_BQ[:, :, None]
        tiny = np.finfo(self.dtype).tiny
        loss_BQ = -np.log(np.maximum(right_BQ1[:, :, 0], tiny)) * weight_BQ

        grad_B1QP = (grad_BQU @ votes_BPU.swapaxes(1, 2))[:, None]
        gradients = {"gain": (attention_BNQP * grad_B1QP).sum(axis=(2, 3))}
        gradients["gain"] = gradients["gain"].reshape(num_seeds, -1, self.num_heads).sum(axis=1)
        grad_BNQP = gain_BN[:, :, None, None] * grad_B1QP
        # Backward through softmax, scores, and rotation.
        grad_BNQP -= (attention_BNQP * grad_BNQP).sum(axis=-1, keepdims=True)
        grad_BNQP *= attention_BNQP
        query_BNQW, key_BNPW = rotated
        query_BQNR = self._unrotate(grad_BNQP @ key_BNPW, self.query_phase_STNR, batch.query_BQ)
        key_BPNR = self._unrotate(
            grad_BNQP.swapaxes(2, 3) @ query_BNQW, self.key_phase_STNR, batch.key_BP
        )
        gradients |= self._codes_gradients(query_BQNR, key_BPNR, batch)
        if "frequency" in self.params:
            gradients["frequency"] = self._frequency_gradients(query_BQNR, key_BPNR, batch)
        return loss_BQ.reshape(num_seeds, -1).sum(axis=1), gradients

    def _forward(self, batch: Batch):
        """Return logits, attention, gains, votes `[B, P, U]`, and rotated queries and keys."""
        query_XNR, key_XNR = self._codes()
        query_BNQW = self._rotate(
            query_XNR[batch.query_id_BQ], self.query_phase_STNR, batch.query_BQ
        )
        key_BNPW = self._rotate(key_XNR[batch.key_id_BP], self.key_phase_STNR, batch.key_BP)
        attention_BNQP = query_BNQW @ key_BNPW.swapaxes(2, 3)
        is_visible_B1QP = batch.is_visible_BQP[:, None]
        attention_BNQP = np.where(is_visible_B1QP, attention_BNQP, self.dtype(_HIDDEN))
        attention_BNQP -= attention_BNQP.max(axis=-1, keepdims=True)
        np.exp(attention_BNQP, out=attention_BNQP)
        attention_BNQP *= is_visible_B1QP  # a window may hide all keys
        attention_BNQP /= np.maximum(attention_BNQP.sum(axis=-1, keepdims=True), 1e-30)
        gain_BN = np.repeat(self.params["gain"], len(batch.key_BP) // len(self.params["gain"]), 0)
        mixed_BQP = (gain_BN[:, :, None, None] * attention_BNQP).sum(axis=1)
        votes_BPU = batch.value_BP[:, :, None] == np.arange(self.num_values)
        votes_BPU = votes_BPU.astype(self.dtype)
        rotated = query_BNQW, key_BNPW
        return mixed_BQP @ votes_BPU, attention_BNQP, gain_BN, votes_BPU, rotated

    def _rotate(self, codes_BKNR: np.ndarray, phase_STNR: np.ndarray, position_BK: np.ndarray):
        """Rotate codes by their positions: real `[B, N, K, 2R]`, K queries or keys."""
        rotated_BKNR = codes_BKNR * _look_up(phase_STNR, position_BK)
        return rotated_BKNR.view(self.dtype).swapaxes(1, 2)

    def _unrotate(
        self, grad_BNKW: np.ndarray, phase_STNR: np.ndarray, position_BK: np.ndarray
    ) -> np.ndarray:
        """Return the gradient of codes, complex `[B, K, N, R]`, from that of rotated ones."""
        grad_BKNR = np.ascontiguousarray(grad_BNKW.swapaxes(1, 2)).view(self.complex)
        return grad_BKNR * _look_up(phase_STNR, position_BK).conj()

    def _frequency_gradients(
        self, query_BQNR: np.ndarray, key_BPNR: np.ndarray, batch: Batch
    ) -> np.ndarray:
        """Return the gradient of "frequency", from those of all queries and keys.

        The phase is position times frequency, and its gradient that of the code across the code.
        """
        parts, num_seeds = [], len(self.params["gain"])
        gradients = (query_BQNR, key_BPNR), (batch.query_id_BQ, batch.key_id_BP)
        positions = batch.query_BQ, batch.key_BP
        for code_XNR, grad_BKNR, ids_BK, position_BK in zip(
            self._codes(), *gradients, positions, strict=True
        ):
            angle_BKNR = np.imag(grad_BKNR * code_XNR[ids_BK].conj()) * position_BK[..., None, None]
            parts.append(angle_BKNR.reshape(num_seeds, -1, *angle_BKNR.shape[2:]).sum(axis=1))
        assert self.positions.offset_unit_NR is not None
        return ((parts[0] + parts[1]) * self.positions.offset_unit_NR).astype(self.dtype)

    def _codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of queries and keys, complex `[S V, N, R]`, before rotation."""
        if self.codes_SVF is not None:
            weight_S1F = self.params["weight"].view(self.complex)[:, None]
            codes_2SVF = np.stack([weight_S1F * self.codes_SVF, self.codes_SVF])
        else:
            x_S1VE = self._normalize()[0][:, None]
            codes_2SVF = (x_S1VE @ self.params["projection"]).swapaxes(0, 1)
            codes_2SVF = np.ascontiguousarray(codes_2SVF).view(self.complex)
        query, key = codes_2SVF.reshape(2, -1, self.num_heads, self.key_phase_STNR.shape[-1])
        return query, key

    def _codes_gradients(
        self, query_BQNR: np.ndarray, key_BPNR: np.ndarray, batch: Batch
    ) -> Params:
        """Return the gradients of the parameters of codes, from those of all queries and keys."""
        num_seeds, num_ids = len(self.params["gain"]), len(self.params["gain"]) * self.num_keys
        query_SVF, key_SVF = (
            _sum_by(ids.ravel(), gradient.reshape(ids.size, -1).view(self.dtype), num_ids).reshape(
                num_seeds, self.num_keys, -1
            )
            for gradient, ids in ((query_BQNR, batch.query_id_BQ), (key_BPNR, batch.key_id_BP))
        )
        if self.codes_SVF is not None:
            grad_SF = (query_SVF.view(self.complex) * self.codes_SVF.conj()).sum(axis=1)
            return {"weight": grad_SF.view(self.dtype)}
        x_SVE, scale_SV1 = self._normalize()
        grad_S2VF = np.stack([query_SVF, key_SVF], axis=1)
        projection_S2EF = self.params["projection"]
        x_grad_SVE = (grad_S2VF @ projection_S2EF.swapaxes(2, 3)).sum(axis=1)
        along_SV1 = (x_grad_SVE * x_SVE).mean(axis=-1, keepdims=True)
        return {
            "projection": x_SVE.swapaxes(1, 2)[:, None] @ grad_S2VF,
            "embedding": scale_SV1 * (x_grad_SVE - x_SVE * along_SV1),
        }

    def _normalize(self) -> tuple[np.ndarray, np.ndarray]:
        """Return normalized embeddings, and their scale, 1 / rms."""
        embedding_SVE = self.params["embedding"]
        square_SV1 = (embedding_SVE * embedding_SVE).mean(axis=-1, keepdims=True)
        scale_SV1 = 1 / np.sqrt(square_SV1 + self.dtype(_NORM_EPSILON))
        return embedding_SVE * scale_SV1, scale_SV1


def _look_up(phase_STNR: np.ndarray, position_BK: np.ndarray) -> np.ndarray:
    """Return the rotations at the positions of all seeds' documents, `[B, K, N, R]`."""
    if len(phase_STNR) == 1:
        return phase_STNR[0, position_BK]
    seed_B = np.repeat(np.arange(len(phase_STNR)), len(position_BK) // len(phase_STNR))
    return phase_STNR[seed_B[:, None], position_BK]


def _sum_by(ids: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the sum of the rows of each id, `[count, ...]`; faster than `np.add.at`."""
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    first = np.flatnonzero(np.diff(sorted_ids, prepend=-1))
    sums = np.zeros((count, rows.shape[1]), rows.dtype)
    sums[sorted_ids[first]] = np.add.reduceat(rows[order], first, axis=0)
    return sums


class _Adam:
    """AdamW (arXiv 1711.05101); gains do not decay."""

    def __init__(self, params: Params, training: Training):
        self.training, self.count = training, 0
        self.mean, self.square = (
            {name: np.zeros_like(value) for name, value in params.items()} for _ in range(2)
        )

    def update(self, params: Params, gradients: Params, learning_rate: float) -> None:
        """Change the parameters by one update."""
        self.count += 1
        beta1, beta2 = self.training.beta1, self.training.beta2
        for name, gradient in gradients.items():
            if name in self.training.fixed:
                continue
            mean, square = self.mean[name], self.square[name]
            mean += (1 - beta1) * (gradient - mean)
            square += (1 - beta2) * (gradient * gradient - square)
            change = mean / (1 - beta1**self.count)
            change /= np.sqrt(square / (1 - beta2**self.count)) + _EPSILON
            if name == "frequency":
                change *= self.training.frequency_rate
            elif name != "gain":
                change += self.training.weight_decay * params[name]
            if name == "projection":
                change[:, [part in self.training.fixed for part in ("query", "key")]] = 0
            params[name] -= learning_rate * change
