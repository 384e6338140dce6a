"""From a run directory to arrays and a figure; its questions are those that evaluate.py asks."""

import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
import pytest

from configs import find_config
from data.pipeline import make_batches, open_data
from evals import runner
from experiment import load, overrides
from experiment.run import RunDirectory
from probes.__main__ import main
from probes.asked.head_scores import HeadScores, repeated_ids
from probes.asked.matching_keys import MatchingKeys
from probes.asked.positions_seen import PositionsSeen, training_pairs
from probes.asked.through_training import ThroughTraining, checkpoints
from probes.questions import answered, ask
from probes.subject import Subject
from training.loop import train
from training.plan import make_plan
from training.step import init_state

# Slow: a run is trained first.
pytestmark = [pytest.mark.usefixtures("unoptimized"), pytest.mark.slow]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_data) -> RunDirectory:
    given = [*tiny_data, "train.num_steps=2", "train.save_every=1"]
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    assert train(make_plan([overrides.apply(find_config("tiny"), given)], [directory]))
    return directory


def test_what_is_answered_right_is_what_evaluation_finds(run):
    ((_, _, rows),) = runner.evaluate([run.path], runner.Options(tasks=["kv"], documents=8))
    inside, questions = ask(load(run.path), documents=8)
    np.testing.assert_array_equal(questions.distances, rows["distance"])
    np.testing.assert_array_equal(answered(inside, questions), rows["exact_match"])


def test_repeated_ids_are_distinct_and_come_twice(run):
    ids_BT = repeated_ids(load(run.path).tokenizer, length=37)
    assert ids_BT.shape[1] == 36
    np.testing.assert_array_equal(ids_BT[:, :18], ids_BT[:, 18:])
    assert all(len(set(row)) == 18 for row in ids_BT.tolist())


def test_distances_are_those_of_the_rows_that_were_trained_on(run):
    subject = Subject(run=load(run.path))
    counts_BM, num_rows = training_pairs(subject.run)
    config = run.config
    batches = make_batches(open_data(config.data), start_step=0)
    expected = [
        brute_force(segment_ids_T)
        for batch in itertools.islice(batches, config.train.num_steps)
        for segment_ids_T in batch["segment_ids"]
    ]
    assert num_rows == len(expected) == config.train.num_steps * config.data.batch_size
    np.testing.assert_array_equal(counts_BM, expected)
    found = PositionsSeen.look(subject)
    np.testing.assert_allclose(found.seen_3M[0], np.mean(expected, axis=0))
    assert math.isnan(found.l50_3[0]) and math.isnan(found.at_l50)  # two updates teach nothing


def brute_force(segment_ids_T: np.ndarray) -> np.ndarray:
    """Pairs in one document, by distance: all pairs of tokens asked."""
    places_T = np.arange(len(segment_ids_T))
    back_TS = places_T[:, None] - places_T
    together_TS = (segment_ids_T[:, None] == segment_ids_T) & (segment_ids_T > 0)
    return np.bincount(back_TS[(back_TS >= 0) & together_TS], minlength=len(places_T))


def test_through_training_says_of_each_checkpoint_what_probes_say_of_it(run):
    assert [each.step for each in checkpoints(load(run.path))] == [0, 1, 2]
    subject = Subject(run=load(run.path, 1), documents=4, measured=4)
    found = ThroughTraining.look(subject)
    assert found.step_C.tolist() == [0, 1]
    for probe in (MatchingKeys, HeadScores):
        for name, number in probe.look(subject).numbers().items():
            np.testing.assert_array_equal(found.of(name)[:, 1], number)
    assert [line["updates"] for line in found.lines()] == ["0", "1"]


def test_before_training_heads_weigh_all_alike(run):
    """Random queries and keys know nothing, and tell keys apart by little."""
    subject = Subject(run=load(run.path), documents=16)
    untrained = checkpoints(subject.run)[0]
    fresh = init_state(run.config, 0).params
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    jax.tree.map(close, untrained.params, fresh)
    found = HeadScores.look(dataclasses.replace(subject, run=untrained))
    scores_X = [found.prefix_3LN, found.previous_3LN, found.first_3LN]
    scores_X += [found.entropy_3LN, found.distance_3LN]
    uniform_LX = np.delete(found.uniform_LX, 3, axis=1)  # of retrieval nothing is right
    for score_3LN, uniform_L in zip(scores_X, uniform_LX.T, strict=True):
        np.testing.assert_allclose(score_3LN[0], uniform_L[:, None] * [1, 1], rtol=0.15)


def test_a_run_gets_arrays_figures_and_a_page(run, capsys):
    given = ["--documents", "8", "--step", "1", "--probes", "matching_keys"]
    assert main([str(run.path), *given]) == 0
    with np.load(run.path / "probes" / "matching_keys.npz") as arrays:
        assert arrays["step"] == 1
        assert arrays["zero_LN"].shape == (2, 2)
        assert arrays["gap_LNM"].shape == (2, 2, 63)
    assert (run.path / "probes" / "matching_keys.png").read_bytes()[1:4] == b"PNG"
    assert "<svg" in (run.path / "probes" / "inside.html").read_text()
    assert "like a window of" in capsys.readouterr().out
