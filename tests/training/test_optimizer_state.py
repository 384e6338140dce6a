"""Whatever the optimizer: its state is split as the parameters are, and counted in full."""

import dataclasses

import jax
import optax
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from ropewalk.configs import find_config
from ropewalk.experiment.checkpoint import leaves_by_name
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import sharding
from ropewalk.model.transformer import abstract_params, count_params
from ropewalk.training import optimizer, plan

TINY = find_config("tiny")
OPTIMIZERS = {
    "as trained": optimizer.make_optimizer(TINY.train),
    "adafactor": optax.adafactor(1e-3),
    "muon": optimizer.make_optimizer(dataclasses.replace(TINY.train, optimizer="muon")),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_are_split_as_their_parameters(name):
    mesh = AbstractMesh((1, 1, 4, 1, 1), ("sweep", "data", "fsdp", "sequence", "tensor"))
    params = abstract_params(TINY.model)
    of_params = sharding.parameter_shardings(TINY.model, mesh, members=False)
    state = jax.eval_shape(OPTIMIZERS[name].init, params)
    result = optimizer.state_shardings(
        OPTIMIZERS[name], state, params, of_params, NamedSharding(mesh, PartitionSpec())
    )
    assert jax.tree.structure(result) == jax.tree.structure(state)
    shapes, of_params = leaves_by_name(params), leaves_by_name(of_params)
    num_split, where = 0, leaves_by_name(result)
    for path, leaf in leaves_by_name(state).items():
        # A moment's path ends in the name of its parameter.
        owner = max((owner for owner in shapes if path.endswith(owner)), key=len, default=None)
        is_moment = owner is not None and leaf.shape == shapes[owner].shape
        assert where[path].spec == (of_params[owner].spec if is_moment else PartitionSpec())
        num_split += "fsdp" in where[path].spec
    assert num_split >= sum("fsdp" in x.spec for x in of_params.values()) * (name != "adafactor")


def test_the_memory_check_counts_the_state(monkeypatch, tmp_path):
    """Two float32 numbers for each parameter under AdamW, none under plain SGD."""
    num_bytes = 4 * count_params(TINY.model)["total"]
    monkeypatch.setattr(plan, "device_memory", lambda: int(2.5 * num_bytes))

    def check() -> list[str]:
        return plan.check_plan([Member(RunDirectory(tmp_path / "run"), (), TINY)])

    with pytest.raises(ValueError, match="parameters and optimizer state take"):
        check()
    monkeypatch.setattr(optimizer, "make_optimizer", lambda config: optax.sgd(1.0))
    check()
