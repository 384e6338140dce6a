import numpy as np
import pytest

from reporting import superficial
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row


def test_superficial_shows_perplexity_over_the_best_and_retrieval(tmp_path):
    """exp(2.2 - 2.0) = 1.2214; accuracy, mean over 127 distances: 19/127 and 59/127."""
    folder = make_sweep(tmp_path, ["base=10", "base=30", "nope"])
    for name, reach, nll in (("base=10", 20, 2.2), ("base=30", 60, 2.0), ("nope", 1000, 1.0)):
        config = experiment("nope" if name == "nope" else f"rope({name})")
        rows = [*answers(config, reach, documents=2), row(config, "perplexity", nll=nll)]
        make_run(folder / name, config, rows)
    members = read(folder)
    assert superficial.superficial_lengths(members) == [128]
    above, below = superficial.draw_superficial(members).axes

    def points(ax):
        lines = [line for line in ax.get_lines() if line.get_marker() == "o"]
        return [float(np.ravel(line.get_ydata())[0]) for line in lines]

    assert points(above) == pytest.approx([np.exp(0.2), 1])
    assert points(below) == pytest.approx([19 / 127, 59 / 127], abs=0.005)
