"""Sizes and peaks of slices, from docs.cloud.google.com/tpu/docs/{v5e,v5p,v6e,tpu7x}."""

import pytest

from ropewalk.experiment.cost import peak_of
from ropewalk.model.loss import MAX_LOGITS_OF
from ropewalk.tpu.topology import CHIPS, GPUS, find_slice


@pytest.mark.parametrize(
    ("name", "num_chips", "num_hosts", "accelerator_type", "rings"),
    [  # rings as MaxText's accelerator_to_spec_map.py has them for the compiler
        ("v5e:1x1", 1, 1, "v5litepod-1", False),
        ("v5p:16x16x24", 6144, 1536, "v5p-12288", True),
        ("v4:2x4x4", 32, 8, "v4-64", False),
        ("tpu7x:4x4x4", 64, 16, "tpu7x-128", True),
        # Not a power of two: from xpk's table of what GKE can be asked for.
        ("v5p:4x4x12", 192, 48, "v5p-384", True),
    ],
)
def test_published_slices(name, num_chips, num_hosts, accelerator_type, rings):
    """Types count cores: the tables of docs.cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e,tpu7x}."""
    topology = find_slice(name)
    assert (topology.num_chips, topology.num_hosts) == (num_chips, num_hosts)
    assert topology.accelerator_type == accelerator_type
    assert set(topology.rings) == {rings}
    assert topology.name == find_slice(accelerator_type).name == name
    assert find_slice("v5e-256").name == "v5e:16x16"  # as GKE calls it


def test_logits_take_a_small_part_of_every_chips_memory():
    """A 64th to a 31st of it, in float32; some more of them are made at once going back."""
    memory = {chip.device_kind: chip.usable_memory for chip in (*CHIPS.values(), *GPUS.values())}
    del memory["Tesla T4"]  # has the default
    assert memory.keys() == MAX_LOGITS_OF.keys()
    for kind, size in memory.items():
        assert 1 / 64 < 4 * MAX_LOGITS_OF[kind] / size <= 1 / 31


def test_peaks_of_a_chip_are_the_sheets():
    """TFLOP/s; TPU7x has two devices per chip."""
    for name, tera in {"v5e": 197, "v5p": 459, "tpu7x": 2307}.items():
        chip = CHIPS[name]
        assert peak_of(chip.device_kind) * chip.devices == pytest.approx(tera * 1e12)
    assert find_slice("tpu7x:4x4x4").num_devices == 128
