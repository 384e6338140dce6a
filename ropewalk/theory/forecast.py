"""Forecast of key-value recall from a config alone, by the minimal head (`theory.minimal_head`).

The forecast uses the frequencies, heads, windows and masked distances of the model, its width, the
optimizer with its learning rates, and the distances and keys of the task `kv`. It runs no model.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ropewalk import evals
from ropewalk.data.tasks.kv import Kv
from ropewalk.data.tokenizer import NUM_VALUES
from ropewalk.evals.estimate.effective_context import Estimate, estimate_trials
from ropewalk.evals.estimate.trials import Trials
from ropewalk.experiment.config import ExperimentConfig, is_frozen
from ropewalk.experiment.schedule import learning_rate_fraction
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import NO_WINDOW
from ropewalk.model.mask import is_visible
from ropewalk.theory.capability import query_head_frequencies
from ropewalk.theory.minimal_head import Accuracy, Layouts, Positions, Training, simulate

_DOCUMENTS = {"train": 1024, "test": 256}  # layouts; training draws new keys for them
_MAX_PHASES = 2**26  # positions x heads x pairs
_PARAMETERS = {
    "embedding": "embedding",
    "query": "blocks.attention.query",
    "key": "blocks.attention.key",
}


class Recall(NamedTuple):
    """Forecast of one config.

    Attributes:
      trials: answers of all simulated seeds, counted by distance.
      estimate: effective context, mean accuracy and worst bin, as measured models have them; its
        intervals are over simulated seeds.
      notes: what the model has and the simulation leaves out.
      inv_freq_SNR: frequencies of the layer that counts, which differ from those of the config if
        they are learned.
    """

    trials: Trials
    estimate: Estimate
    notes: tuple[str, ...]
    inv_freq_SNR: np.ndarray


def forecast(config: ExperimentConfig, seeds: Sequence[int]) -> Recall:
    """Simulate a config's recall with the minimal head; a pure function of its arguments.

    If layers differ, each is simulated alone, and the one with the highest mean accuracy counts.

    Args:
      config: of one run; the first `kv` of `data.retrieval_tasks` trains, and the first `kv` of
        `evals.tasks`, or else the same task, tests at the first of `evals.lengths`.
      seeds: of the simulation.

    Raises:
      ValueError: if the config cannot be forecast.
    """
    trained, tested, share = check(config)
    length = config.data.context_length
    test_length, *_ = config.evals.lengths or (length,)
    layouts = make_layouts(trained, length, "train")
    test = make_layouts(tested, test_length, "test")
    rates = {n: 0.0 for n, path in _PARAMETERS.items() if is_frozen(path, config.train)}
    fractions = learning_rate_fraction(config.train, jnp.arange(config.train.num_steps))
    training = Training(
        learning_rates=config.train.learning_rate * np.asarray(fractions, np.float64),
        batch_size=config.data.batch_size * share,
        beta1=config.train.beta1,
        beta2=config.train.beta2,
        weight_decay=config.train.weight_decay,
        embed_dim=config.model.embed_dim,
        num_keys=trained.keys,
        num_values=NUM_VALUES,
        aligned=config.model.align_query_key,
        rates=rates,
    )
    recalls = []
    for positions in _layers(config, max(length, test_length)):
        accuracy = simulate(positions, layouts, training, seeds, test=test)
        trials = count_trials(accuracy, seeds)
        lengths = test_length, length
        estimate = estimate_trials(trials, task=tested.expression, lengths=lengths)
        recalls.append(Recall(trials, estimate, _notes(config), accuracy.inv_freq_SNR))
    return max(recalls, key=lambda recall: recall.estimate.mean_accuracy)


def check(config: ExperimentConfig) -> tuple[Kv, Kv, float]:
    """Return the tasks of training and of the test, and the share of rows that are kv documents.

    Raises:
      ValueError: if a config cannot be forecast, with the reason.
    """
    for field, default in (("start_from", None), ("stages", ())):
        if getattr(config, field) != default:
            raise ValueError(f"{config.name} has {field}: only runs from scratch can be forecast")
    tasks = list(map(evals.parse, config.data.retrieval_tasks))
    trained = [task for task in tasks if isinstance(task, Kv)]
    tested = [task for task in map(evals.parse, config.evals.tasks) if isinstance(task, Kv)]
    fraction = config.data.retrieval_fraction
    if not config.data.has_text:
        fraction = 1.0
    if not trained or not fraction:
        raise ValueError(
            f"{config.name} does not train on kv, the only task with this forecast; it has "
            f"data.retrieval_fraction={fraction:g}, "
            f"data.retrieval_tasks=[{','.join(config.data.retrieval_tasks)}]"
        )
    lengths = config.data.context_length, *config.evals.lengths[:1]
    variants = rotary_lib.unique_variants(config.model.rotary)
    if any(x.at_length(lengths[0]) != x.at_length(lengths[-1]) for x in variants):
        raise ValueError(f"{config.name} has a dynamic variant: forecast it at one length")
    if tested and tested[0].keys != trained[0].keys:
        raise ValueError(
            f"{config.name} trains {trained[0].expression} and is evaluated on "
            f"{tested[0].expression}; give both the same keys"
        )
    return trained[0], (tested or trained)[0], fraction * len(trained) / len(tasks)


@functools.cache  # members of a study share them; they take as long as 1,000 updates
def make_layouts(task: Kv, length: int, split: str) -> Layouts:
    """Draw the positions of keys as documents of the task have them."""
    if length < 8:
        raise ValueError(f"length={length} is too short for a forecast (allowed: 8 or more)")
    keys = [(_DOCUMENTS[split], number) for number in range(_DOCUMENTS[split])]
    randoms = (np.random.Generator(np.random.Philox(key)) for key in keys)
    return Layouts.from_positions([task.layout(length, random) for random in randoms], length)


def _layers(config: ExperimentConfig, longest: int) -> list[Positions]:
    """Return the positions of each different layer, for queries up to `longest`."""
    model = config.model
    table = model.position_table(config.data.context_length)
    inv_freq_LNR = query_head_frequencies(table.inv_freq, model.num_heads)
    if longest * inv_freq_LNR[0].size > _MAX_PHASES:
        raise ValueError(
            f"a forecast at {longest} tokens with {model.num_heads} heads needs too much memory; "
            "lower the context length or the number of heads"
        )
    scale_LKR = np.where(
        table.inv_freq == 0, table.unrotated_logit_scale[..., None], table.logit_scale[..., None]
    )
    # A key's position is at most one above the last query's.
    positions_T = np.arange(longest + 2)
    log_position_T11 = np.log(positions_T + 1)[:, None, None]
    layers = {}
    for layer, window in enumerate(model.windows):
        floor_K1, slope_K1 = (x[layer][:, None] for x in (table.query_floor, table.query_slope))
        scale_TKR = scale_LKR[layer] * np.maximum(floor_K1, slope_K1 * log_position_T11)
        scale_TNR = np.repeat(scale_TKR, model.num_heads // scale_TKR.shape[1], axis=1)
        window = NO_WINDOW if window is None else window
        positions = Positions(
            inv_freq_LNR[layer].astype(np.float32),
            (scale_TNR / np.sqrt(2 * scale_TNR.shape[2])).astype(np.float32),
            np.asarray(is_visible(positions_T, window, model.masked_distances)),
        )
        layers[positions.inv_freq_NR.tobytes(), positions.scale_TNR.tobytes(), window] = positions
    return list(layers.values())


def count_trials(accuracy: Accuracy, seeds: Sequence[int]) -> Trials:
    """Count the answers by seed, document and fine bin of distance."""
    num_seeds, num_answers = accuracy.is_correct_SA.shape
    rows = {
        "seed": np.repeat(seeds, num_answers),
        "document": np.tile(accuracy.document_A, num_seeds),
        "distance": np.tile(accuracy.distance_A, num_seeds),
        "exact_match": accuracy.is_correct_SA.ravel(),
        "chance": np.array([1 / NUM_VALUES]),
    }
    return Trials.from_rows(rows)


def _notes(config: ExperimentConfig) -> tuple[str, ...]:
    model = config.model
    notes = {
        "layers are treated as one; what several layers compute together is left out": (
            model.num_layers > 1
        ),
        "without model.shift_keys, recall is learned later than forecast, or never": (
            not model.shift_keys
        ),
        "query heads that share a key have separate key projections here": (
            model.kv_heads < model.num_heads
        ),
        "heads have separate keys here; those of MLA share one latent": model.mla is not None,
    }
    return tuple(note for note, applies in notes.items() if applies)
