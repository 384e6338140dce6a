"""Rope parameters of a Hugging Face config.json, in float64 and without transformers.

The functions restate what transformers computes from rope parameters. They read no variant of
`model.rotary`, so that both can be compared.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from ropewalk.model.rotary.base import Base, HfHead, geometric_inv_freq
from ropewalk.utils.checks import Bounds, Count, NonNegative, Positive, problem
from ropewalk.utils.messages import nearest, one_line, quoted

# Where config.json has none; 10,000 for other types.
_DEFAULT_THETA = {"smollm3": 2_000_000.0, "olmo3": 500_000.0, "gemma3_text": 1_000_000.0}

# Where version 4 of classes with two bases keeps that of layers with a window, and its default.
LOCAL_BASES = {
    "olmo3": ("rope_theta", 500_000.0),
    "gemma3_text": ("rope_local_base_freq", 10_000.0),
}


class Scales(NamedTuple):
    """Factors of q·k besides 1 / sqrt(head size).

    Attributes:
      rotated: of features that pass through the rotation, even with frequency 0.
      unrotated: of features outside of it, in MLA and behind a partial rotation (Phi-3); 1 if there
        are none.
    """

    rotated: float
    unrotated: float


def read_rope(config: Mapping[str, Any], layer_type: str | None = None) -> dict[str, Any]:
    """Return the rope parameters of one type of layer from a config.json of version 5 or 4.

    Raises:
      ValueError: if the two styles disagree, or a value has the wrong type.
    """
    nested = config.get("rope_parameters")
    by_type = nested.values() if layer_type and isinstance(nested, dict) else ()
    if not all(isinstance(value, dict | None) for value in by_type):
        raise ValueError("config.json: rope_parameters must be an object for each type of layer")
    if layer_type == "sliding_attention" and config.get("model_type") in LOCAL_BASES:
        config = _local_keys(config, layer_type)
    parameters, scaling = config.get("rope_parameters"), config.get("rope_scaling")
    if isinstance(parameters, dict) and layer_type in parameters:
        parameters = parameters[layer_type]
    for name, value in (("rope_parameters", parameters), ("rope_scaling", scaling)):
        if not isinstance(value, dict | None):
            raise ValueError(f"config.json: {name} must be an object, got {quoted(value)}")
    parameters, scaling = dict(parameters or {}), dict(scaling or {})
    if any(isinstance(value, dict) for value in parameters.values()):
        raise ValueError(
            "config.json: rope_parameters differ between types of layers, which this class does "
            "not have"
        )
    names = ("rope_theta", "partial_rotary_factor")
    if layer_type is None:  # classes with rope parameters for each type of layer read it there only
        names += ("original_max_position_embeddings",)
    rope = {name: config[name] for name in names if config.get(name) is not None}
    for place, mapping in (("rope_scaling", scaling), ("rope_parameters", parameters)):
        if kind := mapping.pop("type", None):
            mapping.setdefault("rope_type", kind)
        # transformers reads no flat rope_parameters beside rope_scaling.
        is_hidden = mapping is parameters and bool(scaling) and layer_type is None
        for name, value in mapping.items():
            other = rope.get(name, None if is_hidden else value)
            if other != value:
                raise ValueError(
                    f"config.json: {name} is {quoted(other, 30)}, and in {place} "
                    f"{quoted(value, 30)}; make them agree"
                )
        rope |= mapping
    theta = _DEFAULT_THETA.get(str(config.get("model_type")), 10_000.0)
    rope = {"rope_type": "default", "rope_theta": theta} | rope
    if rope["rope_type"] == "su" and config.get("model_type") == "phi3":  # in its first files
        rope["rope_type"] = "longrope"
    if rope.get("truncate", True) is None:  # false, unlike a missing one
        rope["truncate"] = False
    return {name: value for name, value in rope.items() if value is not None}


def _local_keys(config: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    """Return a config.json with two bases as one of its layers with a window reads it.

    `rope_scaling` applies to layers without a window only.
    """
    name, default = LOCAL_BASES[config["model_type"]]
    parameters = config.get("rope_parameters")
    nested = parameters.get(layer_type) if isinstance(parameters, dict) else None
    base = config.get(name)
    if base is None and not (isinstance(nested, dict) and "rope_theta" in nested):
        base = default
    keys = {"rope_theta": base, "rope_scaling": None}
    return {**config, **keys, "rope_parameters": nested and {layer_type: nested}}


_POSITIVE = ("factor", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor")
_POSITIVE += ("high_freq_factor", "alpha", "short_mscale", "long_mscale")
_RANGES: dict[str, Any] = dict.fromkeys(_POSITIVE, Positive) | {
    "rope_theta": Base,
    "partial_rotary_factor": Annotated[float, Bounds(above=0, at_most=1)],
    "original_max_position_embeddings": Count,
    "mscale": NonNegative,
    "mscale_all_dim": NonNegative,
}


def check_rope(rope: Mapping[str, Any]) -> None:
    """Raise ValueError for a rope parameter out of its range; null means the default."""
    for name, value in rope.items():
        hint = _RANGES.get(name)
        if hint is not None and value is not None and (wrong := problem(value, hint)):
            raise ValueError(f"config.json: {name} must be {wrong}")
    for name in ("short_factor", "long_factor"):
        values = rope.get(name)
        if values is None:
            continue
        if not isinstance(values, list) or any(problem(value, Positive) for value in values):
            raise ValueError(f"config.json: {name} must be a list of numbers above 0")


def compute_frequencies(
    rope: Mapping[str, Any], head: HfHead, length: int = 0
) -> tuple[np.ndarray, Scales]:
    """Compute in float64 what transformers reads from rope parameters.

    Args:
      rope: rope parameters, from `read_rope`.
      head: other entries of the config.json.
      length: tokens of the row, which `longrope` and `dynamic` depend on.

    Returns:
      Radians per token of each pair that the class rotates, and the scales.

    Raises:
      ValueError: if the type is unknown, or a parameter is missing or not allowed.
    """
    check_rope(rope)
    kind = rope["rope_type"]
    function = _FUNCTIONS.get(str(kind))
    if function is None:
        raise ValueError(
            f"config.json: rope_type {quoted(kind)} is not supported; "
            f"{nearest(str(kind), _FUNCTIONS)}"
        )
    try:
        inv_freq, factor = function(rope, head, length)
        mscale = head.mla and kind != "default" and rope.get("mscale_all_dim")
        all_logits = _temperature(mscale or 0, rope.get("factor") or 1) ** 2
    except KeyError as error:
        raise ValueError(f"config.json: rope_type {kind} lacks {error.args[0]!r}") from None
    except (TypeError, ArithmeticError) as error:
        raise ValueError(
            f"config.json: parameters of rope_type {kind} are invalid: {quoted(error)}"
        ) from error
    except ValueError as error:  # float("a")
        raise ValueError(one_line(str(error))) from error
    return inv_freq, Scales(rotated=all_logits * factor**2, unrotated=all_logits)


def _temperature(mscale: float, factor: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1


def _series(rope: Mapping[str, Any], head: HfHead, stretch: float = 1.0) -> np.ndarray:
    """Return the geometric series of the base times stretch ** (d / (d - 2))."""
    dim = int(head.head_dim * rope.get("partial_rotary_factor", 1.0))
    base = rope["rope_theta"]
    if stretch != 1:
        base *= stretch ** (dim / (dim - 2))
    return geometric_inv_freq(base, dim)


def _default(rope, head, length):
    return _series(rope, head), 1.0


def _linear(rope, head, length):
    return _series(rope, head) / rope["factor"], 1.0


def _dynamic(rope, head, length):
    excess = max(length, head.context) / head.context - 1
    return _series(rope, head, 1 + rope["factor"] * excess), 1.0


def _proportional(rope, head, length):
    pairs = int(rope.get("partial_rotary_factor", 1.0) * head.head_dim // 2)
    inv_freq = geometric_inv_freq(rope["rope_theta"], head.head_dim) / rope.get("factor", 1.0)
    return np.where(np.arange(head.head_dim // 2) < pairs, inv_freq, 0.0), 1.0


def _yarn(rope, head, length):
    inv_freq, factor, original = _series(rope, head), rope["factor"], _original(rope, head)
    dim, log_base = 2 * len(inv_freq), math.log(rope["rope_theta"])

    def pair_of(cycles: float) -> float:
        return dim * math.log(original / (cycles * 2 * math.pi)) / (2 * log_base)

    low, high = pair_of(rope.get("beta_fast") or 32), pair_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    span = (high - low) or 0.001
    slowed = np.clip((np.arange(dim // 2) - low) / span, 0, 1)
    mscale, mscale_all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    attention_factor = _temperature(1, factor)
    if mscale and mscale_all_dim:
        attention_factor = _temperature(mscale, factor) / _temperature(mscale_all_dim, factor)
    inv_freq = inv_freq * (slowed / factor + 1 - slowed)
    return inv_freq, float(rope.get("attention_factor") or attention_factor)


def _longrope(rope, head, length):
    original = _original(rope, head)
    factors = np.array(rope["long_factor" if length > original else "short_factor"], np.float64)
    series = _series(rope, head)
    if factors.shape != series.shape:
        raise ValueError(
            f"config.json: longrope has lists of {factors.size} factors, and a head has "
            f"{series.size} pairs"
        )
    stretch = rope.get("factor") or head.context / original
    default = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    return series / factors, float(rope.get("attention_factor") or default)


def _llama3(rope, head, length):
    inv_freq, factor, original = _series(rope, head), rope["factor"], _original(rope, head)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    with np.errstate(divide="ignore"):  # Llama 4 Scout has low = high: no pair is in between
        share = np.clip((original * inv_freq / (2 * np.pi) - low) / (high - low), 0, 1)
    return inv_freq * (share + (1 - share) / factor), 1.0


def _original(rope: Mapping[str, Any], head: HfHead) -> int:
    return rope.get("original_max_position_embeddings") or head.context


_FUNCTIONS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "proportional": _proportional,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
