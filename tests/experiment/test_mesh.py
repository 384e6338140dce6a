"""Which meshes work, and what is said of one that does not."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from jax.sharding import Mesh

from ropewalk.data.config import DataConfig
from ropewalk.experiment.config import ExperimentConfig, MeshConfig, TrainConfig
from ropewalk.experiment.mesh import check_stages, host_rows, mesh_sizes
from ropewalk.model.axes import MESH_AXES
from tests.models import small_model

CONFIG = ExperimentConfig(
    name="test",
    question="?",
    model=small_model(embed_dim=24, num_heads=12, num_kv_heads=6, head_dim=2, mlp_dim=48),
    data=DataConfig(context_length=48, batch_size=8, vocab_size=64),
    train=TrainConfig(num_steps=1, learning_rate=1e-3),
)


def sizes(num_devices: int, num_members: int = 1, num_hosts: int = 1, **changes: int) -> list[int]:
    """Sizes of a mesh, up to the last above 1; `changes` are of the mesh or of the data."""
    mesh = {name: changes.pop(name) for name in MESH_AXES if name in changes}
    data = dataclasses.replace(CONFIG.data, **changes)
    config = dataclasses.replace(CONFIG, mesh=MeshConfig(**mesh), data=data)
    found = list(mesh_sizes(config, num_members, num_devices, num_hosts).values())
    return found[: max(np.flatnonzero(np.array(found) > 1)) + 1]


LONG = {"context_length": 48_000}  # much to compute in a step


@pytest.mark.parametrize(
    ("arguments", "changes", "expected"),
    [
        ((8,), {}, [1, 8]),
        ((8,), {"sequence": 4}, [1, 2, 1, 4]),
        ((24, 6), dict(sweep=-1, data=1, fsdp=2, sequence=2, tensor=2), [3, 1, 2, 2, 2]),
        # A mesh that the user sets stays.
        ((8, 8), {"data": 1, "fsdp": 8}, [1, 1, 8]),
        ((8, 8), {"sweep": 2}, [2, 4]),
        # No device waits for another where members divide among all.
        ((8, 8), {}, [8]),
        ((32, 4, 4), {}, [4, 8]),
        # Groups of devices if a step has much to compute, else one device per member.
        ((8, 6), {}, [6]),
        ((8, 6), LONG, [2, 4]),
        ((8, 6, 2), {}, [2, 4]),  # a host must not be left without work
        ((8, 7), {}, [7]),
        ((8, 7), LONG, [1, 8]),
        ((8, 6), {**LONG, "batch_size": 2}, [6]),  # rows that do not divide
    ],
)
def test_sizes_of_a_mesh(arguments, changes, expected):
    assert sizes(*arguments, **changes) == expected


def test_rows_that_no_mesh_divides():
    with pytest.raises(ValueError, match=r"=8 does not divide .*accumulate=2; use 2"):
        sizes(8, 7, 2, batch_size=2)


def test_rows_of_a_later_stage_that_the_mesh_of_the_first_does_not_divide():
    long, short = (dataclasses.replace(CONFIG.data, **x) for x in (LONG, {"batch_size": 1}))
    stages = [dataclasses.replace(CONFIG, data=data) for data in (long, short)]
    axes = mesh_sizes(stages[0], 6, 8)  # sweep=2, data=4; the second alone would have sweep=6
    check_stages(stages[:1], axes, 6)
    with pytest.raises(ValueError, match=r"=4 does not divide .*=1; use 1"):
        check_stages(stages, axes, 6)


class Chip(SimpleNamespace):
    """A device as far as a mesh looks at it."""

    def __hash__(self):
        return self.id


def shares(hosts: np.ndarray, batch_size: int) -> list[tuple[list[int], list[int]]]:
    """Each host's rows, and those it counts; `hosts` says whose each device of a mesh
    `[sweep, data, fsdp, sequence, tensor]` is."""
    kind = {"platform": "cpu", "device_kind": "cpu", "num_cores": 1}
    chips = [Chip(id=i, process_index=int(host), **kind) for i, host in enumerate(hosts.flat)]
    mesh = Mesh(np.array(chips, object).reshape(hosts.shape), MESH_AXES)
    rows_by_host = [host_rows(mesh, batch_size, host) for host in range(hosts.max() + 1)]
    return [(share.rows, np.array(share.rows)[share.counted].tolist()) for share in rows_by_host]


def test_hosts_that_split_rows_of_tokens_read_the_same_rows():
    """Four devices, two or four hosts; each row is counted once."""
    by_row = np.array([0, 0, 1, 1]).reshape(1, 4, 1, 1, 1)
    assert shares(by_row, 4) == [([0, 1], [0, 1]), ([2, 3], [2, 3])]
    by_token = np.array([0, 0, 1, 1]).reshape(1, 1, 1, 4, 1)
    assert shares(by_token, 2) == [([0, 1], [0, 1]), ([0, 1], [])]
    both = np.array([0, 1, 2, 3]).reshape(1, 2, 1, 2, 1)
    assert shares(both, 2) == [([0], [0]), ([0], []), ([1], [1]), ([1], [])]
    # Hosts as on a torus, where each has a square of the chips, and rows that are no neighbors.
    square = np.array([0, 0, 1, 1, 0, 0, 1, 1]).reshape(1, 1, 8, 1, 1)
    assert shares(square, 8) == [([0, 1, 4, 5], [0, 1, 4, 5]), ([2, 3, 6, 7], [2, 3, 6, 7])]
