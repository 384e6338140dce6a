"""GPUs by name; with the wheels of CUDA, the real step for real chips."""

import importlib.util

import pytest

from ropewalk.experiment.cost import peak_of
from ropewalk.tpu import hlo
from ropewalk.tpu.topology import GPUS, find
from tests.tpu.compiled import run_report

HAS_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is not None
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="needs jax[cuda13]: make test-gpu")


def test_peaks_of_data_sheets():
    """Dense bfloat16, with float32 sums: H100 SXM 989, A100 312, L4 121, RTX 4090 165 TFLOP/s."""
    peaks = {name: peak_of(chip.device_kind) for name, chip in GPUS.items()}
    sheets = {"h100": 989e12, "a100": 312e12, "a100-40": 312e12, "l4": 121e12, "rtx4090": 165e12}
    assert all(peaks.values()) and peaks == peaks | sheets and peak_of("NVIDIA L40S") == 362e12


def test_a_collective_takes_the_slower_of_both_networks():
    """Among 4 x 8 GPUs, 28 of 32 GB come over NVLink at 450 GB/s, and 3 over a card of 50 GB/s."""
    gather = hlo.Collective(kind="all-gather", count=1, num_bytes=32 * 10**9, group=32, hosts=4)
    assert find("h100:8x4").transfer_seconds(gather) == pytest.approx(28 / 450)
    a_few = hlo.Collective(kind="all-gather", count=1, num_bytes=32 * 10**9, group=4, hosts=4)
    assert find("h100:8x4").transfer_seconds(a_few) == pytest.approx(24 / 50)


@needs_cuda
@pytest.mark.parametrize("name", ["t4", "a100", "h100"])
def test_the_step_compiles_without_the_gpu(name):
    """Eight members on as many GPUs exchange nothing."""
    machine = ("h100:8", "--members", "8") if name == "h100" else (name,)
    report = run_report("tiny", "--topology", *machine, "model.compute_dtype=bfloat16")
    assert report.problem is None and report.collectives == []
    # 34,976 parameters and two moments of each in float32; 8 x 64 tokens' four integers and mask.
    assert 0 <= report.arguments - (3 * 4 * 34_976 + 5 * 4 * 8 * 64) < 1000
    assert "flash" in report.attention if name != "t4" else "xla" in report.attention


@needs_cuda
def test_parameters_are_gathered_once_between_hosts():
    """FSDP over 2 x 8: each gather's and scatter's share from the other host is 1/2 of 1/8."""
    report = run_report(
        *("tiny", "--topology", "h100:8x2", "mesh.data=1", "mesh.fsdp=16", "data.batch_size=16"),
        "model.compute_dtype=bfloat16",
    )
    assert {(c.group, c.hosts) for c in report.collectives} == {(16, 2)}
    assert report.received < 1.3 * sum(report.bound.values())
    assert report.from_other_hosts == pytest.approx(report.received / 15, rel=0.05)
