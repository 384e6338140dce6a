"""GPUs by name; with the wheels of CUDA, the real step for real chips."""

import importlib.util
import re

import jax.numpy as jnp
import pytest

from ropewalk.experiment.cost import peak_of
from ropewalk.model.kernels import flash
from ropewalk.tpu.topology import GPUS
from tests.tpu.compiled import run_report

HAS_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is not None


def needs_cuda(test):
    """Mark a test that runs only where JAX's plug-in for CUDA is installed."""
    skip = pytest.mark.skipif(not HAS_CUDA, reason="needs jax[cuda13]: make test-gpu")
    return pytest.mark.cuda(skip(test))


def test_peaks_of_data_sheets():
    """Dense bfloat16, with float32 sums: H100 SXM 989, A100 312, L4 121, RTX 4090 165 TFLOP/s."""
    peaks = {name: peak_of(chip.device_kind) for name, chip in GPUS.items()}
    sheets = {"h100": 989e12, "a100": 312e12, "a100-40": 312e12, "l4": 121e12, "rtx4090": 165e12}
    assert all(peaks.values()) and peaks == peaks | sheets and peak_of("NVIDIA L40S") == 362e12


def test_attention_uses_the_shared_memory_of_its_gpu(monkeypatch):
    """Between 90% and all of what a block may use; heads of 128 have larger blocks on an H100."""
    kinds = {chip.device_kind: chip.shared_memory[1] for chip in GPUS.values()}
    del kinds["Tesla T4"]  # has no kernel
    x = jnp.zeros((1, 8, 1, 128), "bfloat16")
    blocks = {}
    for kind, memory in kinds.items():
        monkeypatch.setattr(flash.axes, "device_kind", lambda kind=kind: kind)
        assert 0.9 * memory < flash.block_memory() <= memory
        blocks[kind] = [block[:2] for block in flash._choose_blocks(x, x)]
    assert blocks["NVIDIA H100 80GB HBM3"] == [(128, 64), (128, 64), (64, 64)]
    assert blocks["NVIDIA GeForce RTX 4090"] == [(64, 64), (64, 32), (32, 64)]


@needs_cuda
@pytest.mark.parametrize(
    "name, kernel", [("t4", "xla"), ("a100", "flash"), ("h100", "hopper|flash .*tokamax")]
)
def test_the_step_compiles_without_the_gpu(name, kernel):
    """Eight members on as many GPUs exchange nothing."""
    machine = ("h100:8", "--members", "8") if name == "h100" else (name,)
    report = run_report("tiny", "--topology", *machine, "model.compute_dtype=bfloat16")
    assert report.problem is None and report.collectives == []
    # 34,976 parameters and two moments of each in float32; 8 x 64 tokens' four integers and mask.
    assert 0 <= report.arguments - (3 * 4 * 34_976 + 5 * 4 * 8 * 64) < 1000
    assert re.search(kernel, report.attention)


@needs_cuda
def test_parameters_are_gathered_over_two_hosts():
    """FSDP over 2 x 8: two gathers and a scatter of 34,816 numbers in bfloat16."""
    report = run_report(
        *("tiny", "--topology", "h100:8x2", "mesh.data=1", "mesh.fsdp=16", "data.batch_size=16"),
        "model.compute_dtype=bfloat16",
    )
    assert {c.group for c in report.collectives} == {16}
    assert sum(c.received for c in report.collectives) < 1.3 * 3 * 2 * 34_816 * 15 / 16
