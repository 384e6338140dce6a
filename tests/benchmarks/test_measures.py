"""Arithmetic, clock, traces and checks behind the benchmarks; nothing is timed here."""

import types

import pytest

from benchmarks import conformance, processes, profile, shapes
from benchmarks.record import Result
from benchmarks.suite import Setting
from experiment.metrics import flops_per_token, peak_of
from model.kernels import xla


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
    assert flops_per_token(paper.config) == expected_flops(**sizes, T=4096)
    assert flops_per_token(gpu["paper_2b at 32k"].config) == expected_flops(**sizes, T=32_768)
    fitted = paper.fitted(shapes.Fitting(4, "dots"))
    assert shapes.flops(fitted) == 4 * 4096 * expected_flops(**sizes, T=4096)
    sizes = dict(V=32_000, D=2048, L=16, N=16, K=8, H=128, F=8192)
    assert flops_per_token(gpu["1B"].config) == expected_flops(**sizes, T=4096)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("TPU v5 lite", 197e12),
        ("cpu", None),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA GeForce RTX 3090", None),
    ],
)
def test_peaks_of_data_sheets(kind, peak):
    assert peak_of(kind) == peak


def event(operation, nanoseconds):
    stats = [("hlo_op", operation)] if operation else []
    return types.SimpleNamespace(name="kernel", duration_ns=nanoseconds, stats=stats)


def plane(name, **lines):
    lines = [types.SimpleNamespace(name=key, events=events) for key, events in lines.items()]
    return types.SimpleNamespace(name=name, lines=lines)


def test_operations_of_a_trace_are_added_up():
    """On a GPU only its streams count; on a CPU all threads, without loops around operations."""
    host = plane("/host:CPU", thread=[event("dot.1", 7e9), event("while.2", 9e9), event(None, 1)])
    fusions = [event("fusion.1", 2e9), event("fusion.1", 3e9)]
    device = plane(
        "/device:GPU:0",
        Stream1=[*fusions, event("gemm", 1e9), event(None, 4e9)],
        Modules=[event("fusion.1", 5e9)],
    )
    assert profile.operations([host]) == {"dot.1": 7.0}
    assert profile.operations([host, device]) == {"fusion.1": 5.0, "gemm": 1.0, "kernel": 4.0}


def test_conformance_detects_attention_across_documents():
    case = conformance.Case(T=32, N=2, K=1, H=8, U=8)
    inputs = conformance.make_inputs(case)

    def leaking(q_BTNH, k_BSKH, v_BSKU, ids_BT, window):
        return xla.reference(q_BTNH, k_BSKH, v_BSKU, 0 * ids_BT, window)

    assert conformance.measure_leak("a", xla.attention, case, inputs).met
    assert not conformance.measure_leak("a", leaking, case, inputs).met
    exact = conformance.differentiate(xla.reference, case, inputs)
    plain, wrong = (
        conformance.relative_errors(conformance.differentiate(attend, case, inputs), exact)
        for attend in (xla.attention, leaking)
    )
    assert max(plain) < 0.02 and min(wrong) > conformance.FACTOR * max(plain)


def test_conformance_continues_after_a_case_that_fails(monkeypatch):
    """A GPU may be lent for minutes: what one library refuses must not cost the other results."""

    def fail(name, *arguments):
        raise RuntimeError(f"{name} is not supported")

    measured = Result.from_ratio("measured", "ratio", 1.0)
    monkeypatch.setattr(conformance, "CASES", {"MLA": conformance.Case()})
    monkeypatch.setattr(conformance, "_configs", dict)
    monkeypatch.setattr(conformance, "_measure_case", fail)
    monkeypatch.setattr(conformance, "_measure_mask_cost", lambda *_: iter([measured]))
    monkeypatch.setattr(conformance.flash, "INTERPRET", False)  # restored afterwards
    _, note, failed, *others = conformance.measure(Setting("gpu", dry=True))
    assert note == "MLA: failed, RuntimeError: MLA is not supported"
    assert isinstance(failed, Result) and not failed.met and others == [measured] * 2


@pytest.mark.long
def test_functions_in_a_process_return_their_cpu_seconds_and_errors_are_raised():
    with processes.start("benchmarks.limits:matmul", 8) as call:
        assert 0 < call() < 60 and 0 < call() < 60
    with (
        pytest.raises(TypeError, match="no size"),
        processes.start("benchmarks.limits:matmul", "no size"),
    ):
        pass
