"""How a run does on rows it is not trained on, while it trains."""

import itertools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data import pipeline
from experiment.config import ExperimentConfig
from experiment.mesh import host_rows, make_global_batch
from model.transformer import Params
from training.step import MemberArrays, loss_fn, over_members

NUM_BATCHES = 8  # of held-out rows: enough that losses of two steps differ by more than chance


class Validation:
    """Loss on held-out rows, of all members at once, in nats per target that counts.

    The rows are made as those of training are, from documents that training never reads: of text,
    the validation store; of retrieval documents, another split. They are the first NUM_BATCHES
    batches of them, the same at every evaluation and for every member.
    """

    def __init__(
        self, config: ExperimentConfig, data: pipeline.TrainingData, num_members: int, mesh: Mesh
    ):
        self._data, self._mesh, self._batch_size = data, mesh, config.data.batch_size

        def nats_and_targets(params: Params, member: MemberArrays, batch) -> jax.Array:
            # Apart, to be added up: batches have different numbers of targets.
            nats = loss_fn(params, config.model, member.table, batch, jnp.ones(()))
            return jnp.stack([nats, batch["loss_mask"].sum()])

        everywhere = NamedSharding(mesh, PartitionSpec())
        program = over_members(nats_and_targets, num_members, mesh)
        self._nats_and_targets = jax.jit(program, out_shardings=everywhere)

    def __call__(self, params: Params, member: MemberArrays) -> jax.Array:
        """One number, or one a member. Only queues the work: nothing is waited for."""
        host = host_rows(self._mesh, self._batch_size)
        batches = pipeline.make_batches(
            self._data, start_step=0, host_rows=host.rows, split="validation"
        )
        total = jnp.zeros(2)
        for batch in itertools.islice(batches, NUM_BATCHES):
            del batch["row_hash"]  # the digest is of rows that were trained on
            batch = make_global_batch(batch, self._mesh, self._batch_size, host.rows)
            total += self._nats_and_targets(params, member, batch)
        return total[..., 0] / jnp.maximum(total[..., 1], 1)
