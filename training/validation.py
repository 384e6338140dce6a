"""How a run does on what it is not trained on, while it trains."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data import pipeline
from data.tokenizer import Tokenizer
from experiment import distributed
from experiment.config import ExperimentConfig
from experiment.mesh import host_rows, make_global_batch, one_device_mesh
from experiment.stages import Stage
from model.transformer import Params
from training.members import unstack
from training.programs import program, program_of
from training.step import MemberArrays, State, loss_fn, over_members

NUM_BATCHES = 8  # of held-out rows: enough that losses of two steps differ by more than chance


# From the configs and parameters of members, and their tokenizer, to each one's values by name.
Ask = Callable[[Sequence[ExperimentConfig], Sequence[Params], Tokenizer], list[dict[str, float]]]


class Validation:
    """Loss on held-out rows, of all members at once, in nats per target that counts.

    The rows are made as those of training are, from documents that training never reads: of text,
    the validation store; of retrieval documents, another split. They are the first NUM_BATCHES
    batches of them, the same at every evaluation and for every member.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        data: pipeline.TrainingData,
        mesh: Mesh,
        shardings: State,
        ask: Ask | None,
    ):
        """For one stage of each member; `ask` is given parameters too, and may be anything."""
        config, num_members = stages[0].config, len(stages)
        self._data, self._mesh, self._batch_size = data, mesh, config.data.batch_size
        self._configs, self._shardings, self._ask = [s.config for s in stages], shardings, ask

        everywhere = NamedSharding(mesh, PartitionSpec())
        self._nats_and_targets = program(
            _nats_and_targets,
            program_of(config),
            num_members,
            mesh,
            out_shardings=everywhere,
            device_kind=mesh.devices.flat[0].device_kind,
        )

    def __call__(self, params: Params, member: MemberArrays) -> dict[str, Any]:
        """Scalars by name, one number or one per member."""
        return {"val_loss": self._loss(params, member), **self._asked(params)}

    def _loss(self, params: Params, member: MemberArrays) -> jax.Array:
        """Only queues the work: nothing is waited for."""
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

    def _asked(self, params: Params) -> dict[str, np.ndarray]:
        """What `ask` finds, as `val_NAME`. The devices wait for it."""
        if self._ask is None or self._data.tokenizer_path is None:
            return {}
        members = unstack(params, len(self._configs), self._shardings.params)
        whole = [distributed.fetch(one) for one in members]
        # Each host asks for itself: programs made for one device do not split over the run's.
        with jax.set_mesh(one_device_mesh()):
            found = self._ask(self._configs, whole, Tokenizer(self._data.tokenizer_path))
        return {f"val_{name}": np.array([each[name] for each in found]) for name in found[0]}


def _nats_and_targets(config: ExperimentConfig, num_members: int, mesh: Mesh) -> Callable:
    """Sums over a batch, apart, to be added up: batches have different numbers of targets."""

    def of_member(params: Params, member: MemberArrays, batch) -> jax.Array:
        nats = loss_fn(params, config.model, member.table, batch, jnp.ones(()))
        return jnp.stack([nats, batch["loss_mask"].sum()])

    return over_members(of_member, num_members, mesh)
