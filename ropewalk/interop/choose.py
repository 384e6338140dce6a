"""Choose the class of transformers that a model is exported as, and compare config.json with it.

A class fits if the config.json that is written for it is read back as the model. So a feature that
a class lacks is an error, never omitted.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ropewalk.interop.architectures import ARCHITECTURES, Architecture, make_config
from ropewalk.interop.hf_config import HfModel, parse_config
from ropewalk.model import rotary
from ropewalk.model.config import ModelConfig
from ropewalk.utils.messages import nearest

# Fields that do not change the function of given parameters, or that are compared by what follows
# from them.
_OTHERS = {"align_query_key", "attention", "compute_dtype", "remat", "unroll", "loss_chunk"}
_OTHERS |= {"num_kv_heads", "rotary", "window"}


def choose_architecture(
    config: ModelConfig, context: int, model_type: str | None = None
) -> Architecture:
    """Return the class that a model is exported as.

    Args:
      config: the model.
      context: trained context, tokens.
      model_type: the only class allowed; None: the first that fits.

    Raises:
      ValueError: naming a feature that no class, or not this one, supports.
    """
    if any(variant.is_dynamic for variant in rotary.unique_variants(config.rotary)):
        raise ValueError(
            "no class of transformers has frequencies that depend on a row's length as ours do; "
            "evaluate the run here, or train with a static variant"
        )
    layers = rotary.expand_pattern(config.rotary, config.num_layers, config.kv_heads)
    if len(layers[0]) > 1:
        raise ValueError(
            "no class of transformers has frequencies that differ between heads (a rotary pattern "
            "over heads); train without it"
        )
    if model_type is not None and model_type not in ARCHITECTURES:
        raise ValueError(
            f"unknown architecture {model_type!r}; {nearest(model_type, ARCHITECTURES)}"
        )
    misfits = []
    for candidate in [ARCHITECTURES[model_type]] if model_type else ARCHITECTURES.values():
        try:
            written = make_config(candidate, config, context)
            described = parse_config(written, "the folder", context).model
            problems = find_differences(described, config, context, "the class")
            is_refused = False
        except ValueError as error:
            problems, is_refused = [str(error)], True
        if not problems:
            return candidate
        # A class with another type of attention is not the nearest.
        distance = (candidate.mla != (config.mla is not None), is_refused, len(problems))
        misfits.append((distance, candidate.model_type, problems))
    _, name, problems = min(misfits, key=lambda misfit: misfit[0])
    subject = name if model_type else f"no class of transformers fits; the nearest, {name},"
    raise ValueError(
        f"{subject} does not fit this model: {'; '.join(problems)}. Train without what it lacks"
    )


def check_config(
    hf_config: Mapping[str, Any], config: ModelConfig, context: int, name: str = "config.json"
) -> HfModel:
    """Return the model that a config.json describes; raise ValueError if it is not `config`."""
    source = parse_config(hf_config, "the folder", context)
    for difference in find_differences(source.model, config, context, name):
        raise ValueError(difference)
    return source


def find_differences(
    described: ModelConfig, config: ModelConfig, context: int, name: str
) -> list[str]:
    """Describe each difference between two models.

    Args:
      described: the model of a config.json.
      config: the model of a run.
      context: trained context, tokens.
      name: name of the first in the messages.
    """
    # A field that is new in the model, which no class knows, must have its default.
    values = {
        x.name: (getattr(described, x.name, x.default), getattr(config, x.name))
        for x in dataclasses.fields(config)
        if x.name not in _OTHERS
    }
    values["num_kv_heads"] = described.kv_heads, config.kv_heads
    if described.windows != config.windows:
        values["window"] = described.window, config.window
    different = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    rotations = (_rotation(described, context), _rotation(config, context))
    if not all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=1e-25)
        for a, b in zip(*rotations, strict=True)
    ):
        different["rotary"] = rotary.label(described.rotary), rotary.label(config.rotary)
    return [
        f"{name} has {field}={first}, and the run has {second}"
        for field, (first, second) in different.items()
    ]


def _rotation(config: ModelConfig, context: int) -> list[np.ndarray]:
    """Return the frequencies and the scales of all pairs of each head, `[L, K, R]`."""
    table = config.position_table(context)
    rotates = table.inv_freq != 0
    scale = np.where(rotates, table.logit_scale[..., None], table.unrotated_logit_scale[..., None])
    query_scales = (table.query_floor[..., None], table.query_slope[..., None])
    shape = (config.num_layers, config.kv_heads, table.inv_freq.shape[-1])
    return [np.broadcast_to(x, shape) for x in (table.inv_freq, scale, *query_scales)]
