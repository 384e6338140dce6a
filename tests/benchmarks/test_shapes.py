"""FLOPs by hand; nothing is timed here."""

from ropewalk.experiment.metrics import flops_per_token
from ropewalk.tpu.benchmarks import shapes


def expected_flops(V, D, L, N, K, H, F, T):
    """Return 6 per weight, output included, and 3 times the two products of causal attention.

    A query attends to (T + 1) / 2 keys on average, counted as T / 2: 2 products x 2 FLOP x H each.
    """
    weights = L * (D * N * H + 2 * D * K * H + N * H * D + 3 * D * F) + V * D
    norms = L * 2 * D + D  # counted with the weights: 0.01% of them
    return 6 * (weights + norms) + 3 * L * N * (2 * 2 * H) * T / 2


def test_flops_by_hand():
    gpu = shapes.train_shapes("gpu")
    sizes = dict(V=125_696, D=2048, L=32, N=16, K=16, H=128, F=5504)
    paper = gpu["paper_2b"]
    assert flops_per_token(paper) == expected_flops(**sizes, T=4096)
    assert flops_per_token(gpu["paper_2b at 32k"]) == expected_flops(**sizes, T=32_768)
    assert shapes.flops(paper) == 4 * 4096 * expected_flops(**sizes, T=4096)
    sizes = dict(V=32_000, D=2048, L=16, N=16, K=8, H=128, F=8192)
    assert flops_per_token(gpu["1B"]) == expected_flops(**sizes, T=4096)
