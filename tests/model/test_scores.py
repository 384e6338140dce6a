"""Scores that are no rotation of plain queries and keys: the sum of their paper, and a run."""

import jax
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import find_runs
from ropewalk.interop.choose import choose_architecture
from ropewalk.model import transformer
from ropewalk.model.positions import cos_sin
from tests.in_process import call
from tests.models import small_model

T, R, N, K = 9, 8, 4, 2
POPE = small_model(
    scores="pope", num_heads=N, num_kv_heads=K, head_dim=2 * R, rotary="rope(base=50)"
)


def test_pope_is_the_sum_of_its_paper():
    """2509.10534: magnitudes softplus(x), angles t base^(-c/d), and a clamped phase of keys."""
    params = jax.tree.map(lambda x: x[0], transformer.init(POPE.architecture, 0)["blocks"])
    attention, random = params["attention"], np.random.default_rng(0)
    assert attention["query"].shape == (16, N, R) and not attention["phase"].any()
    attention["phase"] = random.uniform(-9, 2, (K, R)).astype(np.float32)  # beyond both ends
    x_TD = random.normal(size=(T, 16))
    module = transformer.build(transformer.Block, POPE.architecture, params).attention
    positions_1T = np.arange(T)[None]
    table = jax.tree.map(lambda x: x[0], POPE.position_table(T))
    inputs = table, cos_sin(table.cycles_hi, table.cycles_lo, positions_1T), positions_1T
    q_k_v = module.compute_qkv(x_TD[None].astype(np.float32), positions_1T)
    out_1TD = module.attend(q_k_v, *inputs, np.ones((1, T), np.int32))
    names = "query", "key", "value"
    q, k, v = (np.einsum("td,dnh->tnh", x_TD, np.asarray(attention[n], float)) for n in names)
    phase = np.clip(np.asarray(attention["phase"], float), -2 * np.pi, 0)
    for t in range(T):
        expected_D = np.zeros(16)
        for n in range(N):
            g = n // (N // K)
            logits = np.zeros(t + 1)
            for s in range(t + 1):
                for c in range(R):
                    magnitude = np.log1p(np.exp(q[t, n, c])) * np.log1p(np.exp(k[s, g, c]))
                    logits[s] += magnitude * np.cos((s - t) * 50.0 ** (-c / R) + phase[g, c])
            weights = np.exp(logits / R**0.5)
            expected_D += weights @ v[: t + 1, g] / weights.sum() @ attention["out"][n]
        np.testing.assert_allclose(out_1TD[0, t], expected_D, atol=2e-6)


def test_what_reads_frequencies_of_plain_rope_says_so():
    params = transformer.init(POPE.architecture, 0)
    with pytest.raises(ValueError, match=r"needs plain queries, and model\.scores=pope"):
        transformer.without_pairs(POPE, params, np.ones((1, N, R), bool))
    with pytest.raises(ValueError, match="scores=rotary, and the run has pope"):
        choose_architecture(POPE, 64)
    with pytest.raises(ValueError, match=r"no model\.scores=popes; did you mean 'pope'"):
        small_model(scores="popes")


@pytest.mark.long
def test_a_sweep_of_pope_trains_resumes_is_evaluated_probed_and_reported(tmp_path, tiny_data):
    folder = tmp_path / "sweep"
    command = (
        *("sweep.py", "tiny", "--workdir", folder, *tiny_data, "model.scores=pope"),
        *("train.num_steps=4", "train.save_every=2", "evals.tasks=[kv]"),
        "model.rotary.base=10,10000",
    )
    call(*command)
    runs = find_runs([folder])
    expected = [restore_params(run)[0] for run in runs]
    for run in runs:
        for path in sorted(run.path.glob("checkpoints/4*")):
            path.rename(tmp_path / f"{run.path.name}-{path.name}")
    assert "resuming from step 2" in call(*command)
    for run, params in zip(runs, expected, strict=True):
        jax.tree.map(np.testing.assert_array_equal, restore_params(run)[0], params)
        assert params["blocks"]["attention"]["phase"].any()
    call("evaluate.py", folder)
    call("probes", runs[0].path)
    call("report.py", folder)
    header, *lines = (folder / "results.csv").read_text().splitlines()
    theory = header.split(",").index("theory_length")
    assert lines and not any(line.split(",")[theory] for line in lines)
