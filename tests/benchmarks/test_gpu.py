"""What is measured, counted by hand."""

import types

import numpy as np
import pytest

from benchmarks import machine, profiling, shapes
from benchmarks.gpu import conformance, fitting
from experiment.metrics import flops_per_token, peak_of
from model.transformer import count_params


def by_hand(V, D, L, N, K, H, F, T):
    """6 a weight of every matrix, output included; and causal attention's two products, thrice.

    A query sees (T + 1) / 2 keys on average, taken as T / 2: 2 products x 2 FLOP x H each.
    """
    weights = L * (D * N * H + 2 * D * K * H + N * H * D + 3 * D * F) + V * D
    norms = L * 2 * D + D  # counted with the rest: 0.01% of them
    return 6 * (weights + norms) + 3 * L * N * (2 * 2 * H) * T / 2


def test_flops_of_paper_2b_by_hand():
    paper, longer = (shapes.on_gpu()[name].config for name in ("paper_2b", "paper_2b at 32k"))
    sizes = dict(V=125_696, D=2048, L=32, N=16, K=16, H=128, F=5504)
    assert flops_per_token(paper) == by_hand(**sizes, T=4096)
    assert flops_per_token(longer) == by_hand(**sizes, T=32_768)
    fitted = fitting.fitted(paper, shapes.Fitting(4, "dots"))
    assert shapes.flops(fitted) == 4 * 4096 * by_hand(**sizes, T=4096)


def test_flops_with_shared_keys_by_hand():
    billion = shapes.on_gpu()["1B"].config
    sizes = dict(V=32_000, D=2048, L=16, N=16, K=8, H=128, F=8192)
    assert flops_per_token(billion) == by_hand(**sizes, T=4096)


def test_sizes_are_what_their_names_say():
    def millions(config):
        return count_params(config.model)["total"] / 1e6

    assert 9 < millions(shapes.on_cpu()["10M"]) < 11
    assert 27 < millions(shapes.on_cpu()["30M"]) < 33
    assert 9 < millions(shapes.sweeps_on_gpu()["10M"]) < 11
    assert 27 < millions(shapes.sweeps_on_gpu()["30M"]) < 33
    assert 0.95e3 < millions(shapes.on_gpu()["1B"].config) < 1.2e3


@pytest.mark.parametrize(
    "config",
    [*(s.config for s in shapes.on_gpu(0.01).values()), *shapes.sweeps_on_gpu(0.01).values()],
    ids=lambda config: config.name,
)
def test_a_dry_run_is_a_hundredth_and_still_a_model(config):
    assert 32 <= config.data.context_length <= 400
    assert config.model.num_layers >= 2 and count_params(config.model)["total"] < 2e6
    assert config.train.accumulate == 1


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
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_peaks_of_data_sheets(kind, peak):
    assert peak_of(kind) == peak


def test_memory_that_is_shared_counts_once():
    plan = types.SimpleNamespace(
        argument_size_in_bytes=100,
        output_size_in_bytes=90,
        temp_size_in_bytes=30,
        alias_size_in_bytes=80,
    )
    compiled = types.SimpleNamespace(memory_analysis=lambda: plan)
    assert fitting.planned_bytes(compiled) == 140


def event(operation, nanoseconds):
    stats = [("hlo_op", operation)] if operation else []
    return types.SimpleNamespace(name="kernel", duration_ns=nanoseconds, stats=stats)


def plane(name, **lines):
    lines = [types.SimpleNamespace(name=key, events=events) for key, events in lines.items()]
    return types.SimpleNamespace(name=name, lines=lines)


def test_operations_of_a_trace_are_added_up():
    """Of a GPU its streams alone; of a CPU all threads, without the loops that hold the rest."""
    host = plane("/host:CPU", thread=[event("dot.1", 7e9), event("while.2", 9e9), event(None, 1)])
    device = plane(
        "/device:GPU:0",
        Stream1=[
            event("fusion.1", 2e9),
            event("gemm", 1e9),
            event("fusion.1", 3e9),
            event(None, 4e9),
        ],
        Modules=[event("fusion.1", 5e9)],
    )
    assert profiling.operations([host]) == {"dot.1": 7.0}
    assert profiling.operations([host, device]) == {"fusion.1": 5.0, "gemm": 1.0, "kernel": 4.0}


def test_operations_say_where_they_come_from():
    program = """
  %fusion.1 = bf16[8]{0} fusion(%a), kind=kLoop, metadata={op_name="jit(step)/a/b/mlp/mul" x=1}
  ROOT dot = f32[] dot(%a, %b), metadata={op_name="jit(step)/dot"}
  %bare = f32[] add(%a, %b)
"""
    sources = {"fusion.1": "jit(step)/a/b/mlp/mul", "dot": "jit(step)/dot"}
    assert profiling.sources_of(program) == sources


def test_a_kernel_that_looks_across_documents_is_seen():
    """What attends over the whole row, whatever the documents, leaks and is far off."""
    from model.kernels import xla

    case = conformance.Case(T=32, N=2, K=1, H=8, U=8)
    inputs = conformance._inputs(case)

    def leaking(q_BTNH, k_BSKH, v_BSKU, ids_BT, window):
        return xla.reference(q_BTNH, k_BSKH, v_BSKU, 0 * ids_BT, window)

    assert conformance._leak("a", xla.attention, case, inputs).met
    assert not conformance._leak("a", leaking, case, inputs).met
    exact = conformance.results(xla.reference, case, inputs)
    own = conformance.errors(conformance.results(xla.attention, case, inputs), exact)
    wrong = conformance.errors(conformance.results(leaking, case, inputs), exact)
    assert max(own) < 0.02 and min(wrong) > conformance.FACTOR * max(own)
    np.testing.assert_equal(conformance.errors(exact, exact), [0, 0, 0, 0])


def test_a_machine_is_named_without_its_host():
    device = {"processor": "AMD EPYC (tm) 9B14", "cores": 2}
    assert machine.folder_of(device) == "amd-epyc-tm-9b14-2-cores"
    device["accelerator"] = "NVIDIA H100 80GB HBM3"
    assert machine.folder_of(device) == "nvidia-h100-80gb-hbm3"
