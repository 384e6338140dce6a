"""Columns, figures and tables that tasks declare."""

import numpy as np
import pytest

from ropewalk.reporting import curves, results
from tests.reporting.helpers import experiment, make_run, make_sweep, read, row


def lines(member):
    return {(line["task"], line["schedule"]): line for line in results.make_lines(member)}


def test_first_losses_are_paired_and_averaged_over_seeds(tmp_path):
    """Seed 0: +1 and +3 nats on chunks of 1 and 3 tokens, 2.5 a token; seed 1: 0.5 on both."""
    folder = make_sweep(tmp_path, ["base=10,seed=0", "base=10,seed=1"])
    for seed, changes in ((0, (1.0, 3.0)), (1, (0.5, 0.5))):
        config = experiment("rope(base=10)", seed=seed)
        rows = []
        for query, change in enumerate(changes):
            chunk = {"query": query, "num_tokens": (1, 3)[query]}
            rows.append(row(config, "step1", nll=5.0 * (query + 1), **chunk))
            other = 5.0 * (query + 1) + change
            rows.append(row(config, "step1", rotary="rope(base=500)", base=500, nll=other, **chunk))
        make_run(folder / f"base=10,seed={seed}", config, rows)
    (member,) = read(folder)
    columns = lines(member)
    assert columns["step1", "trained"]["first_loss"] == 0
    other = columns["step1", "rope(base=500)"]
    assert other["first_loss"] == pytest.approx((2.5 + 0.5) / 2)
    # Ratio estimator of seed 0: sqrt(2 / 1 * 2 * 1.5**2) / 4; seed 1 has none.
    assert other["first_loss_error"] == pytest.approx((2 * 2 * 1.5**2) ** 0.5 / 4 / 2)
    ((plot, panels),) = curves.task_plots([member])
    assert plot.name == "step1" and [panel.length for panel in panels] == [128]
    ax = curves.draw([member], plot, panels).axes[0]
    points = {
        float(x): float(y)
        for line in ax.get_lines()
        if len(line.get_xdata()) == 2 and line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert points == pytest.approx({10.0: 0.0, 500.0: 1.5})


def test_perplexity_before_any_context_or_without_a_number_is_not_drawn(tmp_path):
    """At position 1 the model has read nothing: nine nats there would hide all else.

    exp(800) is infinite in float64.
    """
    config = experiment("rope(base=10)")
    nats = {1: 9.0, 2: 2.0, 3: 1.0, 4: 800.0, 5: float("nan")}
    rows = [row(config, "perplexity", distance=m, nll=n, document=d) for m, n in nats.items()
            for d in (0, 1)]  # fmt: skip
    make_run(tmp_path, config, rows)
    ((_, (panel,)),) = curves.task_plots(read(tmp_path))
    ((curve,),) = panel.curves.values()
    assert dict(zip(curve.x, np.log(curve.y), strict=True)) == pytest.approx({2: 2.0, 3: 1.0})
