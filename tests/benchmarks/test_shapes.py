"""FLOPs by hand; nothing is timed here."""

import pytest

from ropewalk.experiment.cost import RATES, flops_per_token
from ropewalk.tpu.benchmarks import shapes
from tests.in_process import call


def expected_flops(V, D, L, N, K, H, F, T):
    """Return 6 per weight, output included, and 3 times the two products of causal attention.

    A query attends to (T + 1) / 2 keys on average, counted as T / 2: 2 products x 2 FLOP x H each.
    """
    weights = L * (D * N * H + 2 * D * K * H + N * H * D + 3 * D * F) + V * D
    norms = L * 2 * D + D  # counted with the weights: 0.01% of them
    return 6 * (weights + norms) + 3 * L * N * (2 * 2 * H) * T / 2


def test_rates_follow_from_the_tokens_that_were_measured():
    """Tokens/s of one H100 with a peak of 989 TFLOP/s, in the order of the shapes."""
    measured = (279_500, 51_170, 22_870, 7_444)
    rates = [rate for rate in RATES if rate.chip == "H100"]
    shares = [
        tokens * flops_per_token(config) / 989e12
        for tokens, config in zip(measured, shapes.train_shapes("gpu").values(), strict=True)
    ]
    assert [rate.share for rate in rates] == pytest.approx(shares, abs=0.001)
    # 238,000 steps of 1,024 x 4,096 tokens at 22,870 a second.
    assert "about 505 days on one H100" in call("train.py", "paper_2b", "--help")


def test_flops_by_hand():
    gpu = shapes.train_shapes("gpu")
    sizes = dict(V=125_696, D=2048, L=32, N=16, K=16, H=128, F=5504)
    paper = gpu["paper_2b"]
    assert flops_per_token(paper) == expected_flops(**sizes, T=4096)
    assert flops_per_token(gpu["paper_2b at 32k"]) == expected_flops(**sizes, T=32_768)
    assert shapes.flops(paper) == 4 * 4096 * expected_flops(**sizes, T=4096)
    sizes = dict(V=32_000, D=2048, L=16, N=16, K=8, H=128, F=8192)
    assert flops_per_token(gpu["1B"]) == expected_flops(**sizes, T=4096)
