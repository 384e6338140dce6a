"""Rotary variants and the rope parameters of a Hugging Face config.json, both ways.

transformers 5 reads `rope_parameters`, version 4 `rope_theta` and `rope_scaling`: a config that is
written here has both, and they say the same. What a reader makes of them stands here too, restated
from transformers' functions in float64 (`frequencies`), so that what is written is read back and
compared with the model's own vector before anything else happens.

Any static vector is `longrope`, one factor a pair, whatever it came from; a variant goes by its own
name where readers of either version make exactly its vector of it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from model.rotary.base import Rotary, geometric_inv_freq
from model.rotary.dynamic_ntk_aware import DynamicNtkAware
from model.rotary.llama3 import Llama3
from model.rotary.longrope import Longrope
from model.rotary.p_rope import PRope
from model.rotary.position_interpolation import PositionInterpolation
from model.rotary.recorded import Recorded
from model.rotary.rope import Rope
from model.rotary.yarn import Yarn
from utils.messages import nearest, quoted

Rope_ = dict[str, Any]

UNROTATED = 1e30  # a factor: such a pair turns by 1e-30 radians a token, which no float32 shows
_DEFAULT_THETA = {"smollm3": 2_000_000.0}  # of a config that does not say; 10,000 for the rest
TYPES = ("default", "linear", "yarn", "llama3", "longrope", "proportional", "dynamic")


class Head(NamedTuple):
    """Facts from the rest of the config that a reader of rope parameters needs.

    Attributes:
      head_dim: features of a head that are rotated, or may be.
      context: max_position_embeddings, tokens.
      mla: whether its attention is multi-head latent attention, which scales logits by itself too.
    """

    head_dim: int
    context: int
    mla: bool = False


class Scales(NamedTuple):
    """Factors on q·k beside 1 / sqrt(head size).

    Attributes:
      rotated: of features that pass through the rotation (those that turn by 0 included).
      rest: of features outside of the rotation: MLA's, and those behind a partial one's (Phi-3);
        1 where there are none.
    """

    rotated: float
    rest: float


def frequencies(rope: Mapping[str, Any], head: Head, length: int = 0) -> tuple[np.ndarray, Scales]:
    """Compute what transformers makes of rope parameters, in float64.

    Args:
      rope: as `rope_parameters` of one kind of layer.
      head: see there.
      length: of the row, tokens, by which `longrope` chooses between its lists.

    Returns:
      Radians per token of each pair that the class rotates, and the scales.

    Raises:
      ValueError: if the type is unknown, or a parameter is missing or senseless.
    """
    kind = rope.get("rope_type", "default")
    if kind not in TYPES or kind == "dynamic":
        raise ValueError(f"rope_type {quoted(kind)} is not read; {nearest(str(kind), TYPES)}")
    try:
        inv_freq, factor = _FUNCTIONS[kind](rope, head, length)
        mscale = head.mla and rope.get("mscale_all_dim")
        everywhere = _temperature(mscale or 0, rope.get("factor") or 1) ** 2
    except KeyError as error:
        raise ValueError(f"rope_type {kind} lacks {error.args[0]!r}") from None
    except (TypeError, ArithmeticError) as error:
        # Numbers of another kind, or out of any formula's range.
        raise ValueError(f"rope_type {kind} has senseless parameters: {quoted(error)}") from error
    return inv_freq, Scales(rotated=everywhere * factor**2, rest=everywhere)


def _temperature(mscale: float, factor: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1


def _series(rope: Mapping[str, Any], head: Head) -> np.ndarray:
    dim = int(head.head_dim * rope.get("partial_rotary_factor", 1.0))
    return geometric_inv_freq(rope["rope_theta"], dim)


def _default(rope, head, length):
    return _series(rope, head), 1.0


def _linear(rope, head, length):
    return _series(rope, head) / rope["factor"], 1.0


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
    return inv_freq * (slowed / factor + 1 - slowed), _yarn_factor(rope)


def _yarn_factor(rope: Mapping[str, Any]) -> float:
    """The factor on cosines and sines."""
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    mscale, everywhere = rope.get("mscale"), rope.get("mscale_all_dim")
    if mscale and everywhere:
        return _temperature(mscale, rope["factor"]) / _temperature(everywhere, rope["factor"])
    return _temperature(1, rope["factor"])


def _longrope(rope, head, length):
    original = _original(rope, head)
    factors = np.array(rope["long_factor" if length > original else "short_factor"], np.float64)
    series = _series(rope, head)
    if factors.shape != series.shape:
        raise ValueError(
            f"longrope has lists of {factors.size} factors; this head has {series.size} pairs"
        )
    return series / factors, _longrope_factor(rope, head)


def chosen_list(rope: Mapping[str, Any], head: Head, length: int) -> str | None:
    """Return the name of the list of factors that `longrope` takes for rows of `length` tokens.

    None for the other types, and where both lists are the same.
    """
    if rope.get("rope_type") != "longrope" or rope.get("short_factor") == rope.get("long_factor"):
        return None
    return "long_factor" if length > _original(rope, head) else "short_factor"


def _longrope_factor(rope: Mapping[str, Any], head: Head) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    original = _original(rope, head)
    factor = rope.get("factor") or head.context / original
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _llama3(rope, head, length):
    inv_freq, factor, original = _series(rope, head), rope["factor"], _original(rope, head)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = np.clip((original * inv_freq / (2 * np.pi) - low) / (high - low), 0, 1)
    return inv_freq * (share + (1 - share) / factor), 1.0


def _original(rope: Mapping[str, Any], head: Head) -> int:
    return rope.get("original_max_position_embeddings") or head.context


_FUNCTIONS = {
    "default": _default,
    "linear": _linear,
    "proportional": _proportional,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}


def rope_parameters(
    rotary: Rotary, head: Head, *, rope_type: str | None = None, partial: bool = False
) -> Rope_:
    """The rope parameters that stand for a static variant.

    Args:
      rotary: one layer's.
      head: of the model it is in.
      rope_type: only this one; None: by its own name, else as longrope.
      partial: the class rotates the first features of a head only (Phi-3); else it rotates them
        all, and those that stay are slowed beyond seeing.

    Raises:
      ValueError: if nothing of that type has the variant's frequencies and scales.
    """
    inv_freq = rotary.inv_freq(head.head_dim)
    fraction = rotary.rotary_dim(head.head_dim) / head.head_dim if partial else 1.0
    wanted = inv_freq[: int(head.head_dim * fraction) // 2]
    own_rest = head.mla or len(wanted) < len(inv_freq)
    scales = Scales(rotary.logit_scale, rotary.unrotated_logit_scale if own_rest else 1.0)
    for rope in _candidates(rotary, head, wanted, scales):
        if partial:
            rope["partial_rotary_factor"] = fraction
        rope = {name: _plain(name, value) for name, value in rope.items()}
        # Version 4 does not know `proportional`: only where it is asked for.
        if rope["rope_type"] != rope_type and (rope_type or rope["rope_type"] == "proportional"):
            continue
        # Beyond the trained context too: some readers change their mind there.
        read = [frequencies(rope, head, length) for length in (1, 64 * head.context)]
        if all(_same(vector, wanted) and _close(actual, scales) for vector, actual in read):
            return rope
    raise ValueError(
        f"{type(rotary).__name__} is no rope_type {rope_type!r}; leave --rope-type out"
    )


def _plain(name: str, value: Any) -> Any:
    """A JSON value: version 4 warns of a factor that is no float, and of a length that is one."""
    if isinstance(value, str | list):
        return value
    return int(value) if name == "original_max_position_embeddings" else float(value)


def _same(vector: np.ndarray, wanted: np.ndarray) -> bool:
    # An unrotated pair, slowed: what is left turns by nothing at any length.
    return vector.shape == wanted.shape and np.allclose(vector, wanted, rtol=1e-12, atol=1e-25)


def _close(actual: Scales, scales: Scales) -> bool:
    return np.allclose(actual, scales, rtol=1e-12)


def _candidates(
    rotary: Rotary, head: Head, inv_freq: np.ndarray, scales: Scales
) -> Iterator[Rope_]:
    """Rope parameters that may stand for a variant, best first; not all of them do."""
    base = getattr(rotary, "base", None)
    if len(inv_freq) > 1 and inv_freq[1] > 0:
        # Whatever made it (a base of NTK, say): a plain series is plain.
        fitted = (inv_freq[0] / inv_freq[1]) ** len(inv_freq)
        theta = base if isinstance(rotary, Rope) else fitted
        yield {"rope_type": "default", "rope_theta": theta}
    if isinstance(rotary, PositionInterpolation):
        yield {"rope_type": "linear", "rope_theta": base, "factor": rotary.factor}
    if isinstance(rotary, Llama3):
        yield {
            "rope_type": "llama3",
            "rope_theta": base,
            "factor": rotary.factor,
            "original_max_position_embeddings": rotary.original_context_length,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
        }
    # Version 4 takes the stretch for max_position_embeddings over the original, whatever `factor`.
    stretched = isinstance(rotary, Yarn) and rotary.factor * rotary.original_context_length
    if isinstance(rotary, Yarn) and rotary.truncate and stretched == head.context:
        yield _as_yarn(rotary, scales)
    share = np.count_nonzero(inv_freq) / len(inv_freq)
    if base is not None and share:
        exponent = 1 if isinstance(rotary, PRope) else 1 / share
        yield {
            "rope_type": "proportional",
            "rope_theta": base**exponent,
            "partial_rotary_factor": share,
        }
    yield _as_longrope(inv_freq, base or 10_000.0, head, scales)


def _as_yarn(rotary: Yarn, scales: Scales) -> Rope_:
    rope = {
        "rope_type": "yarn",
        "rope_theta": rotary.base,
        "factor": rotary.factor,
        "original_max_position_embeddings": rotary.original_context_length,
        "beta_fast": rotary.beta_fast,
        "beta_slow": rotary.beta_slow,
        "attention_factor": math.sqrt(scales.rotated / scales.rest),
    }
    if scales.rest == 1:
        return rope
    everywhere = rotary.mscale if rotary.mscale_all_dim is None else rotary.mscale_all_dim
    return rope | {"mscale": rotary.mscale, "mscale_all_dim": everywhere}


def _as_longrope(inv_freq: np.ndarray, base: float, head: Head, scales: Scales) -> Rope_:
    series = geometric_inv_freq(base, 2 * len(inv_freq))
    slowed = np.divide(series, inv_freq, out=np.full_like(series, UNROTATED), where=inv_freq > 0)
    factor = math.sqrt(scales.rotated / scales.rest)
    rope: Rope_ = {
        "rope_type": "longrope",
        "rope_theta": base,
        "short_factor": slowed.tolist(),
        "long_factor": slowed.tolist(),
        # No other length at which to change lists, and no temperature of its own.
        "factor": 1.0,
        "original_max_position_embeddings": head.context,
        "attention_factor": factor,
    }
    if scales.rest != 1:
        # DeepSeek's: all logits by (0.1 mscale_all_dim ln(factor) + 1)^2.
        rope |= {"factor": math.e, "mscale_all_dim": 10 * (math.sqrt(scales.rest) - 1)}
    if factor != 1:
        # vLLM does not read attention_factor; these it does.
        rope |= {"short_mscale": factor, "long_mscale": factor}
    return rope


def both_styles(rope: Rope_) -> dict[str, Any]:
    """The keys of a config.json that say `rope` to transformers 5 and to version 4."""
    old = {name: value for name, value in rope.items() if name not in ("rope_theta", "rope_type")}
    keys: dict[str, Any] = {"rope_parameters": rope, "rope_theta": rope["rope_theta"]}
    partial = old.pop("partial_rotary_factor", None)
    if partial is not None:
        keys["partial_rotary_factor"] = partial
    scaling = {"rope_type": rope["rope_type"], "type": rope["rope_type"], **old}
    return keys | {"rope_scaling": scaling if rope["rope_type"] != "default" else None}


def of_config(config: Mapping[str, Any], layer_type: str | None = None) -> Rope_:
    """The rope parameters that a config.json of either version gives one kind of layer.

    Raises:
      ValueError: if there are none, or two that disagree.
    """
    parameters, scaling = config.get("rope_parameters"), config.get("rope_scaling")
    if isinstance(parameters, dict) and layer_type in parameters:
        parameters = parameters[layer_type]
    for name, value in (("rope_parameters", parameters), ("rope_scaling", scaling)):
        if not isinstance(value, dict | None):
            raise ValueError(f"{name} must be an object, got {quoted(value)}")
    parameters, scaling = dict(parameters or {}), dict(scaling or {})
    if any(isinstance(value, dict) for value in parameters.values()):
        raise ValueError("rope_parameters differ by kind of layer, which this class does not have")
    for mapping in (parameters, scaling):
        if kind := mapping.pop("type", None):
            mapping.setdefault("rope_type", kind)
    shared = {**_top(config), **({"rope_type": "default"} if not scaling else {}), **scaling}
    for name, value in parameters.items():
        other = shared.get(name, value)
        if other != value and not (name == "rope_type" and not scaling):
            raise ValueError(
                f"config.json says {name}={quoted(other, 30)} and, in rope_parameters, "
                f"{quoted(value, 30)}; make them agree"
            )
    rope = {**shared, **parameters}
    rope.setdefault("rope_theta", _DEFAULT_THETA.get(str(config.get("model_type")), 10_000.0))
    if rope["rope_type"] == "su":  # what Phi-3's first files call it
        rope["rope_type"] = "longrope"
    return {name: value for name, value in rope.items() if value is not None}


def _top(config: Mapping[str, Any]) -> Rope_:
    """Parameters that stand beside the others."""
    names = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
    return {name: config[name] for name in names if config.get(name) is not None}


def variant(rope: Mapping[str, Any], head: Head, length: int, name: str) -> Rotary:
    """The variant that makes of rope parameters what transformers does.

    Args:
      rope: as `of_config` gives them.
      head: of the model.
      length: context it is taken for, tokens: `longrope` has two lists.
      name: where it comes from, for a vector that no variant of ours makes.

    Raises:
      ValueError: if there is none, or the parameters are not what the type takes.
    """
    if rope["rope_type"] == "dynamic":
        return _dynamic(rope, head)
    inv_freq, scales = frequencies(rope, head, length)
    own_rest = head.mla or 2 * len(inv_freq) < head.head_dim
    inv_freq = np.append(inv_freq, np.zeros(head.head_dim // 2 - len(inv_freq)))
    inv_freq = np.where(inv_freq < 1e-25, 0, inv_freq)
    for candidate in _variants(rope, head, length, scales):
        actual = Scales(candidate.logit_scale, candidate.unrotated_logit_scale if own_rest else 1.0)
        if _same(candidate.inv_freq(head.head_dim), inv_freq) and _close(actual, scales):
            return candidate
    rest = scales.rest if own_rest else scales.rotated
    values = tuple(inv_freq.tolist())
    return Recorded(name=name, values=values, scale=scales.rotated, unrotated_scale=rest)


def _dynamic(rope: Mapping[str, Any], head: Head) -> Rotary:
    if rope.get("factor") != 1:
        raise ValueError(
            f"rope_type dynamic with factor={quoted(rope.get('factor'))} is none of our variants; "
            "dynamic_ntk_aware is its factor=1"
        )
    fraction = rope.get("partial_rotary_factor", 1.0)
    return DynamicNtkAware(
        base=rope["rope_theta"], original_context_length=head.context, rotary_fraction=fraction
    )


def _variants(rope, head: Head, length: int, scales: Scales) -> Iterator[Rotary]:
    """Variants that may make these frequencies; a value that ours excludes makes none."""
    base, factor = rope["rope_theta"], rope.get("factor", 1.0)
    fraction, original = rope.get("partial_rotary_factor", 1.0), _original(rope, head)
    keywords = {"base": base, "rotary_fraction": fraction}
    kind = rope["rope_type"]
    if kind == "default":
        yield Rope(**keywords)
    elif kind == "linear":
        yield PositionInterpolation(**keywords, factor=factor)
    elif kind == "proportional":
        yield PRope(**keywords)
    elif kind == "llama3":
        names = ("low_freq_factor", "high_freq_factor")
        bounds = {key: rope[key] for key in names}
        yield Llama3(**keywords, factor=factor, original_context_length=original, **bounds)
    elif kind == "yarn" and factor > 1:
        rotated, rest = ((math.sqrt(s) - 1) / (0.1 * math.log(factor)) for s in scales)
        yield Yarn(
            **keywords,
            factor=factor,
            original_context_length=original,
            beta_fast=rope.get("beta_fast") or 32.0,
            beta_slow=rope.get("beta_slow") or 1.0,
            truncate=rope.get("truncate", True),
            mscale=_rounded(rotated),
            mscale_all_dim=_rounded(rest) if head.mla and rest != rotated else None,
        )
    elif kind == "longrope":
        factors = rope["long_factor" if length > original else "short_factor"]
        # A list may speed pairs up, or hold them still: that is no LongRoPE, but a vector.
        if min(factors) >= 1 and max(factors) < UNROTATED / 1e5:
            yield Longrope(
                **keywords,
                pair_factors=tuple(factors),
                original_context_length=original,
                target_context_length=max(head.context, original),
                cool_rest=fraction < 1,
            )


def _rounded(mscale: float) -> float:
    """Without the last digits, which a logarithm there and back has cost."""
    return round(max(mscale, 0.0), 12)
