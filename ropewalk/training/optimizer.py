"""AdamW or Muon without their learning rate.

The learning rate is an argument of the step, so that members of a sweep can differ in it and share
one program (`experiment.schedule`).
"""

from typing import Any

import jax
import optax
from jax.sharding import NamedSharding
from optax import contrib

from ropewalk.experiment.config import TrainConfig, is_frozen
from ropewalk.model.transformer import Params


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Return clipped AdamW (1711.05101) or Muon (2502.16982) with decay of matrices only.

    The caller multiplies its updates by -learning_rate.
    """
    clip = optax.clip_by_global_norm(config.clip_norm)
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_matrix)
    if config.optimizer == "muon":
        scale = contrib.muon(
            learning_rate=-1.0,  # which `muon` negates
            adam_b1=config.beta1,
            adam_b2=config.beta2,
            eps=config.epsilon,
            consistent_rms=0.2,  # as large as AdamW's updates, so that learning rates carry over
            muon_weight_dimension_numbers=_muon_axes,
        )
    else:
        scale = optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon)
    steps = optax.chain(clip, scale, decay)
    if not config.frozen:
        return steps

    def frozen(params: Params) -> Params:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: is_frozen(".".join(key.key for key in path), config), params
        )

    # Before the norm, which frozen parameters have no part in, and after the decay.
    stop = optax.masked(optax.set_to_zero(), frozen)
    return optax.chain(stop, steps, stop)


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


def _muon_axes(params: Params) -> Params:
    """Return the input and output axes of each matrix of a block, and None for other parameters.

    The first axis has layers, each with a matrix of its own. A projection of all heads is one
    matrix.
    """

    def axes(path, leaf, is_matrix):
        if not is_matrix or path[0].key != "blocks":
            return None
        # Only attention's output sums over two axes: heads, and their features.
        out = leaf.ndim - 1 if path[-1].key == "out" else 2
        return contrib.MuonDimensionNumbers(tuple(range(1, out)), tuple(range(out, leaf.ndim)))

    return jax.tree_util.tree_map_with_path(axes, params, _is_matrix(params))


def _is_matrix(params: Params) -> Params:
    # Norm scales and gates are vectors; those of blocks carry the layer axis in front. Biases are
    # vectors too, written head by head.
    def decayed(path, leaf):
        if path[-1].key.endswith("_bias"):
            return False
        return leaf.ndim - (path[0].key == "blocks") >= 2

    return jax.tree_util.tree_map_with_path(decayed, params)
