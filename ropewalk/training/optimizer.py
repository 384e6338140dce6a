"""AdamW without its learning rate.

The learning rate is an argument of the step, so that members of a sweep can differ in it and share
one program (`experiment.schedule`).
"""

from typing import Any

import jax
import optax
from jax.sharding import NamedSharding

from ropewalk.experiment.config import TrainConfig, is_frozen
from ropewalk.model.transformer import Params


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Return clipped Adam with decoupled weight decay on matrices (1711.05101).

    The caller multiplies its updates by -learning_rate.
    """
    adamw = optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=_is_matrix),
    )
    if not config.frozen:
        return adamw

    def frozen(params: Params) -> Params:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: is_frozen(".".join(key.key for key in path), config), params
        )

    # Before the norm, which frozen parameters have no part in, and after the decay.
    stop = optax.masked(optax.set_to_zero(), frozen)
    return optax.chain(stop, adamw, stop)


def state_shardings(
    optimizer: optax.GradientTransformation,
    state: Any,
    params: Params,
    shardings: Params,
    replicated: NamedSharding,
) -> Any:
    """Return shardings of the state of `optimizer`.

    Args:
      optimizer: transformation that made the state.
      state, params: state and parameters, arrays or abstract arrays.
      shardings: of the parameters. Arrays of the state with the shape of their parameter get its
        sharding.
      replicated: sharding of all other arrays.
    """

    def is_masked(x: Any) -> bool:
        return isinstance(x, optax.MaskedNode)

    def sharding(leaf: Any, where: NamedSharding, param: Any) -> Any:
        if is_masked(leaf):
            return leaf
        return where if leaf.shape == param.shape else replicated

    return optax.tree_map_params(
        optimizer,
        sharding,
        state,
        shardings,
        params,
        transform_non_params=lambda _: replicated,
        is_leaf=is_masked,
    )


def _is_matrix(params: Params) -> Params:
    # Norm scales and gates are vectors; those of blocks carry the layer axis in front. Biases are
    # vectors too, written head by head.
    def decayed(path, leaf):
        if path[-1].key.endswith("_bias"):
            return False
        return leaf.ndim - (path[0].key == "blocks") >= 2

    return jax.tree_util.tree_map_with_path(decayed, params)
