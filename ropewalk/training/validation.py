"""Validation during training: the loss on held-out rows, and tasks."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ropewalk import evals
from ropewalk.data import pipeline
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment import distributed
from ropewalk.experiment.mesh import host_rows, make_global_batch, one_device_mesh
from ropewalk.experiment.stages import Stage
from ropewalk.model.transformer import Params
from ropewalk.training.members import unstack
from ropewalk.training.programs import MemberArrays, StaticConfig, program, static_config
from ropewalk.training.step import State, loss_fn, over_members, split_batch

NUM_BATCHES = 8  # of held-out rows: enough that losses of two steps differ by more than chance


class Validation:
    """The loss of all members on held-out rows, nats per counted target.

    The rows come from documents that training never reads: for text the validation store, for
    retrieval documents another split. They are the first NUM_BATCHES batches, the same at every
    evaluation and for every member.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        data: pipeline.TrainingData,
        mesh: Mesh,
        shardings: State,
    ):
        """Prepare the validation of one stage."""
        config, num_members = stages[0].config, len(stages)
        self._data, self._mesh, self._batch_size = data, mesh, config.data.batch_size
        self._configs, self._shardings = [stage.config for stage in stages], shardings
        self._evaluate = evals.while_training(config)

        self._nats_and_targets = program(
            _nats_and_targets,
            static_config(config),
            num_members,
            mesh,
            out_shardings=NamedSharding(mesh, PartitionSpec()),
            device_kind=mesh.devices.flat[0].device_kind,
        )

    def __call__(self, params: Params, member: MemberArrays) -> dict[str, Any]:
        """Return scalars by name, each one number or one per member."""
        return {"val_loss": self._loss(params, member), **self._task_values(params)}

    def _loss(self, params: Params, member: MemberArrays) -> jax.Array:
        """Queue the computation of the loss, without waiting for it."""
        host = host_rows(self._mesh, self._batch_size)
        batches = pipeline.make_batches(
            self._data, start_step=0, host_rows=host.rows, split="validation"
        )
        total = jnp.zeros(2)
        for batch in itertools.islice(batches, NUM_BATCHES):
            del batch["row_hash"]  # the digest covers training rows only
            batch = make_global_batch(batch, self._mesh, self._batch_size)
            total += self._nats_and_targets(params, member, batch)
        return total[..., 0] / jnp.maximum(total[..., 1], 1)

    def _task_values(self, params: Params) -> dict[str, np.ndarray]:
        """Return the values of `train.eval_tasks`. The devices are idle meanwhile."""
        if self._evaluate is None:
            return {}
        members = unstack(params, len(self._configs), self._shardings.params)
        host_params = [distributed.fetch(member_params) for member_params in members]
        # Each host evaluates by itself, on one device.
        with jax.set_mesh(one_device_mesh()):
            values = self._evaluate(
                self._configs, host_params, Tokenizer(self._data.tokenizer_path)
            )
        return {
            f"val_{name}": np.array([member_values[name] for member_values in values])
            for name in values[0]
        }


def _nats_and_targets(config: StaticConfig, num_members: int, mesh: Mesh) -> Callable:
    """Return the function `f(params, member, batch)` of the sums of nats and of counted targets.

    Its result is `[2]`, or `[M, 2]` for several members.
    """

    def sums(params: Params, member: MemberArrays, batch) -> jax.Array:
        def sums_of(rows) -> jax.Array:
            nats = loss_fn(params, config.model, member.table, rows, jnp.ones(()))
            return jnp.stack([nats, rows["loss_mask"].sum()])

        # No more rows at once than the train step has.
        if config.train.accumulate == 1:
            return sums_of(batch)
        return jax.lax.map(sums_of, split_batch(batch, config.train.accumulate)).sum(axis=0)

    return over_members(sums, num_members, mesh)
