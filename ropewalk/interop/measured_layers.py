"""Rotation of each layer, measured on the code of transformers. Needs the extra `hf`.

The model of a config is built without weights and reads a few tokens at chosen positions. Every
linear layer answers with a fixed vector, so queries and keys depend on the rotation only. The model
runs twice: with its rotation, and with an identity in its place. The attention function, which the
model calls with rotated queries and keys, records both, with the factor of the logits and the mask
that the model has made. No name of a class or of a key of a config decides anything.
"""

# torch and transformers belong to an extra.
# pyright: reportMissingImports=false

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoModel
from transformers.initialization import no_init_weights
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from ropewalk.interop.hf_config import resolve_type
from ropewalk.interop.layers import LayerGroup, PublishedModel, group_layers
from ropewalk.model.rotary.rope_parameters import Scales, check_rope
from ropewalk.utils.checks import Bounds, problem
from ropewalk.utils.messages import one_line, quoted

_NAME = "ropewalk_audit"  # of the attention function
_MAX_LAYERS, _MAX_CONTEXT = 256, 2**24
_LONGEST_WINDOW = 2**18  # tokens, in models of shorter contexts; Phi-3 has 262,144 in all of them
_MAX_REAL = 2**20  # numbers of a tensor that is made
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_BASES = ("rope_theta", "rotary_emb_base", "rope_local_base_freq", "swa_rope_theta")
_BASES += ("global_rope_theta", "local_rope_theta")
_PARTS = ("rotary_dim", "rotary_pct", "rope_pct", "rope_percent")  # of a head, that rotate
_KINDS = ("attention", "full_attention", "sliding_attention", "chunked_attention")


class _Call(NamedTuple):
    """One call of the attention function.

    Attributes:
      layer: number of the layer.
      query_NTH, key_KTH: float64, rotated.
      scaling: factor of the logits.
      allows: the mask: a function of batch, head, and positions of queries and keys.
      module: that of attention.
    """

    layer: int
    query_NTH: np.ndarray
    key_KTH: np.ndarray
    scaling: float
    allows: Any
    module: Any


# transformers calls functions that are registered by name, so the forward pass that runs writes
# here: the calls so far, and the number of the layer.
_calls: list[_Call] = []
_layer: list[int] = []
_attention: list[Any] = []  # modules of attention that are running, where they are known


class _UnmeasuredError(ValueError):
    """A model whose rotation this module cannot measure."""


def measure(config: Mapping[str, Any], length: int | None = None) -> PublishedModel:
    """Return the layers of the model that transformers makes of a config.json.

    Args:
      config: its content.
      length: tokens of the rows, if frequencies depend on it; None: max_position_embeddings.

    Raises:
      ValueError: if transformers does not know the model type, refuses the config, or its code of
        this type cannot be measured.
    """
    kind = quoted(config.get("model_type"), 40)
    try:
        with _quiet():
            text, values = _build_config(config)
            context = _read_size(text, "max_position_embeddings", _MAX_CONTEXT)
            num_layers = _read_size(text, "num_hidden_layers", _MAX_LAYERS)
            ropes = _rope_parameters(text)
            layers = _measure_layers(text, length or context)
    except _UnmeasuredError as error:
        raise ValueError(f"config.json: model_type {kind}: {error}") from None
    except Exception as error:  # the libraries raise many kinds
        if error.args == (_NAME,):
            raise ValueError(
                f"config.json: model_type {kind}: its code in transformers has no exchangeable "
                "attention function, so its rotation cannot be measured"
            ) from None
        reason = one_line(f"{type(error).__name__}: {error}", 160)
        raise ValueError(
            f"config.json: model_type {kind}: transformers cannot run this config ({reason})"
        ) from error
    groups = group_layers(layers, ropes, context, length)
    _check_kept(values, ropes, groups)
    num_without = num_layers - len({layer.layers for layer in layers})
    return PublishedModel(text.model_type, context, groups, num_without)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings of transformers, and compute with one thread: arrays are small."""
    before = logging.get_verbosity(), torch.get_num_threads()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        logging.set_verbosity(before[0])
        torch.set_num_threads(before[1])


def _build_config(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return transformers' config of the text model, and the keys of config.json that state it."""
    kind = resolve_type(config)
    if kind not in CONFIG_MAPPING:
        raise _UnmeasuredError(
            f"transformers {transformers.__version__} does not have this type; if its code rotates "
            "as llama's does, say, audit a copy with that model_type"
        )
    for name in config.get("architectures") or ():
        types = [x for x, y in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if y == name]
        if types and not {kind, config["model_type"]} & {*types}:
            raise _UnmeasuredError(f"architectures has a class of model_type {min(types, key=len)}")
    # Neither decides a rotation, and both would load other code.
    values = {k: v for k, v in config.items() if k not in ("auto_map", "quantization_config")}
    values["model_type"] = kind
    full_config = CONFIG_MAPPING[kind].from_dict(copy.deepcopy(values))
    text = full_config.get_text_config()
    if text is not full_config:
        names = _path_to(text, full_config)
        nested: Any = values
        for name in names:
            nested = nested.get(name) if isinstance(nested, Mapping) else None
        # Older files have the text model's keys beside the others, which some classes read.
        is_nested = isinstance(nested, Mapping)
        if not is_nested and any(values.get(key) != getattr(text, key, None) for key in _SIZES):
            name = ".".join(names) or "text_config"
            raise _UnmeasuredError(f"a multimodal model, whose config lacks {name}")
        values |= dict(nested) if is_nested else {}
    if type(text) not in MODEL_MAPPING:
        raise _UnmeasuredError(
            "transformers has no model of its text part alone; if that rotates as qwen2's does, "
            "say, audit a copy of the text part's config with that model_type"
        )
    return text, values


def _path_to(text: Any, config: Any) -> tuple[str, ...]:
    """Return the names of nested configs that lead to the text model's; () if none does."""
    for name in config.sub_configs:
        inner = getattr(config, name, None)
        if inner is text:
            return (name,)
        if inner is not None and (path := _path_to(text, inner)):
            return (name, *path)
    return ()


def _check_kept(
    values: Mapping[str, Any], ropes: list[dict[str, Any]], groups: Sequence[LayerGroup]
) -> None:
    """Raise ValueError for a base, a rope_type, ... of config.json by which no layer rotates.

    Some classes ignore a key that other code reads, and rotate by their defaults.
    """
    parameters = values.get("rope_parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    rotating = [group for group in groups if group.rope]
    used = [*ropes, *(group.rope for group in rotating)]
    places = [(values, used), (values.get("rope_scaling"), used), (parameters, used)]
    places += [(parameters.get(group.kind), [group.rope]) for group in rotating]
    for mapping, used in places:
        stated = mapping.items() if isinstance(mapping, Mapping) else ()
        for name, value in stated:
            known = [rope.get("rope_theta") for rope in used]
            is_lost = name in _BASES and isinstance(value, int | float) and known != [None]
            if name in ("rope_type", "type"):
                known = [*(rope["rope_type"] for rope in used), "default", "mrope"]
                is_lost = mapping is not values
            if name == "factor" and mapping is not values and value is not None:
                known, is_lost = [rope.get(name) for rope in used], True
            if name in _PARTS and mapping is values and isinstance(value, int | float):
                known, is_lost = [_known_part(name, value, x) for x in rotating], True
            if is_lost and known and value not in known:
                raise ValueError(
                    f"config.json: {name}={quoted(value, 30)} is not used by the class of "
                    f"model_type {quoted(values.get('model_type'), 40)} in transformers, which has "
                    f"{quoted(known[0], 30)}; state it as the class does (rope_type, not type; "
                    "rope_parameters by layer type), or remove it if the model ignores it too"
                )


def _known_part(name: str, value: float, group: LayerGroup) -> float:
    """Return `value` if a head rotates so many features, or such a share of them; else its own."""
    features, unit = 2 * group.inv_freq.size, 1 if name == "rotary_dim" else group.head_dim
    return value if int(value * unit) // 2 * 2 == features else features / unit


def _read_size(text: Any, name: str, limit: int) -> int:
    value: Any = getattr(text, name, None)
    if wrong := problem(value, Annotated[int, Bounds(at_least=1, at_most=limit)]):
        raise _UnmeasuredError(f"{name} must be {wrong}")
    return int(value)  # 4096.0 is a whole number, too


def _rope_parameters(text: Any) -> list[dict[str, Any]]:
    """Return the rope parameters of each type of layer."""
    text.standardize_rope_params()  # original_max_position_embeddings may be a key beside them
    ropes = getattr(text, "rope_parameters", None) or {}
    nested = [dict(rope) for rope in ropes.values() if isinstance(rope, Mapping)]
    nested = nested or [dict(ropes)] * bool(ropes)
    for rope in nested:
        rope.setdefault("rope_type", "default")  # of a type that no layer has
        try:
            check_rope(rope)
        except ValueError as error:
            raise _UnmeasuredError(str(error).removeprefix("config.json: ")) from None
    return nested


# --- a model without weights ----------------------------------------------------------------------


class _WithoutWeights(TorchFunctionMode):
    """Creates matrices without memory, on the device `meta`; vectors and buffers are real."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call a function of torch."""
        kwargs = kwargs or {}
        if func not in (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand):
            return func(*args, **kwargs)
        tensor = func(*args, **{**kwargs, "device": "meta"})
        if tensor.numel() > _MAX_REAL or (func is torch.empty and tensor.ndim > 1):
            return tensor
        return (
            torch.ones(tensor.shape, dtype=tensor.dtype)
            if func is torch.empty
            else func(*args, **kwargs)
        )


class _FixedOutputs(TorchFunctionMode):
    """Runs linear layers and embeddings as fixed vectors, which depend on their size only.

    An operation on real tensors and tensors of the device `meta` gives one of `meta`. The tokens
    that a module of attention counts are at `positions` (Llama 4 does not read position_ids).
    """

    def __init__(self, positions: list[int]):
        super().__init__()
        self.positions = positions

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call a function of torch."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.linear:
            inputs, weight = args[:2]
            return _fixed(weight.shape[0]).expand(*inputs.shape[:-1], weight.shape[0]).clone()
        if func is torch.arange and args == (len(self.positions),) and _attention:
            return torch.tensor(self.positions)
        if func is torch.nn.functional.embedding:
            inputs, weight = args[:2]
            return _fixed(weight.shape[1]).expand(*inputs.shape, weight.shape[1]).clone()
        devices: set[str] = set()
        _map(lambda tensor: devices.add(tensor.device.type), (args, kwargs))
        if len(devices) > 1:
            args, kwargs = _map(lambda tensor: tensor.to("meta"), (args, kwargs))
        result = func(*args, **kwargs)
        # States of recurrent layers are large, and no query or key is.
        is_large = isinstance(result, torch.Tensor) and result.numel() > _MAX_REAL
        return result.to("meta") if is_large else result


def _fixed(size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def _map(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Apply a function to all tensors of nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)(_map(function, item) for item in value)
    if type(value) is dict:
        return {name: _map(function, item) for name, item in value.items()}
    return value


# --- two forward passes ---------------------------------------------------------------------------


def _measure_layers(text: Any, context: int) -> list[LayerGroup]:
    """Return the layers with attention, in the order of their calls."""
    last = max(context - 1, 1)
    positions = sorted({0, 1, math.isqrt(last), last})
    model = _build_model(text)
    modules = _rotary_modules(model)
    hooks = [module.register_forward_hook(_identity) for module in modules]
    plain = _forward(model, [0] * len(positions))
    for hook in hooks:
        hook.remove()
    for module in {call.module for call in plain}:
        module.register_forward_pre_hook(lambda module, _: _attention.append(module))
        module.register_forward_hook(lambda *_: _attention.clear())
    calls = _forward(model, positions)
    if not calls:
        raise _UnmeasuredError("its code in transformers calls no attention function")
    buffers = [
        buffer.double().numpy()
        for module in modules
        for buffer in module.buffers()
        if buffer.ndim == 1 and buffer.device.type == "cpu" and torch.is_floating_point(buffer)
    ]
    labels = getattr(text, "layer_types", None) or ()
    layers = []
    for call, control in zip(calls, plain, strict=True):
        inv_freq, rotation_scale = _measure_rotation(call, control, positions, buffers)
        window, kind = _measure_window(call.allows, context)
        label = labels[call.layer] if call.layer < len(labels) else kind
        D = call.query_NTH.shape[-1]
        scale = call.scaling * D**0.5
        group = LayerGroup(
            layers=(call.layer,),
            kind=kind if label in _KINDS else one_line(str(label), 40),
            inv_freq=inv_freq,
            head_dim=D,
            scales=Scales(scale * rotation_scale, scale),
            window=window,
            query_scale=_measure_query_scale(call, last),
        )
        layers.append(group)
    return layers


def _build_model(text: Any) -> Any:
    """Return the model of a config, whose large weights are on the device `meta`."""
    with _WithoutWeights(), no_init_weights():
        model = AutoModel.from_config(
            text,
            attn_implementation=_NAME,
            experts_implementation="batched_mm",
            dtype="float64",
            trust_remote_code=False,
        ).eval()
    chosen: list[str] = []
    for name, module in model.named_modules():
        is_list = isinstance(module, torch.nn.ModuleList)
        is_inside = any(name.startswith(f"{outer}.") for outer in chosen)
        if is_list and len(module) == text.num_hidden_layers and not is_inside:
            chosen.append(name)
            for number, layer in enumerate(module):
                layer.register_forward_pre_hook(functools.partial(_enter, number))
    return model


def _enter(number: int, *_: Any) -> None:
    _layer[:] = [number]


def _rotary_modules(model: Any) -> list[Any]:
    """Return the modules that hold frequencies."""
    return [
        module
        for module in model.modules()
        if any("inv_freq" in name for name, _ in module.named_buffers(recurse=False))
    ]


def _identity(module: Any, inputs: Any, output: Any) -> Any:
    """Replace cosines and sines, or complex numbers, by those of angle 0."""
    if isinstance(output, torch.Tensor) and output.is_complex():
        return torch.ones_like(output)
    if isinstance(output, tuple) and len(output) == 2:
        return torch.ones_like(output[0]), torch.zeros_like(output[1])
    raise _UnmeasuredError("its rotation is neither cosines and sines nor complex numbers")


def _forward(model: Any, positions: list[int]) -> list[_Call]:
    """Return the calls of the attention function in a forward pass."""
    _calls.clear()
    _layer.clear()
    _attention.clear()
    with torch.no_grad(), _FixedOutputs(positions):
        model(
            input_ids=torch.zeros(1, len(positions), dtype=torch.long),
            position_ids=torch.tensor([positions]),
            # Otherwise jumps of the positions would be read as several documents.
            attention_mask=torch.ones(1, len(positions)),
            use_cache=False,
        )
    return list(_calls)


def _record(module, query, key, value, attention_mask=None, scaling=None, **_) -> tuple[Any, None]:
    """Record a call of the attention function; return zeros."""
    number = _layer[0] if _layer else getattr(module, "layer_idx", None)
    if number is None or "meta" in (query.device.type, key.device.type):
        raise _UnmeasuredError("its queries and keys do not come from linear layers of a layer")
    allows = getattr(attention_mask, "mask_function", None)
    if allows is None:
        raise _UnmeasuredError("its attention mask is not a function of positions")
    scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    call = _Call(number, _array(query), _array(key), scaling, allows, module)
    if not (np.isfinite(call.query_NTH).all() and np.isfinite(call.key_KTH).all()):
        raise _UnmeasuredError("its queries or keys are not finite; check its rope parameters")
    _calls.append(call)
    size = (query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
    return torch.zeros(size, dtype=query.dtype), None


def _array(tensor: Any) -> np.ndarray:
    return tensor[0].double().numpy()


def _make_mask(batch_size, q_length, kv_length, mask_function=None, **_) -> Any:
    """Return a mask that carries its function."""
    mask = torch.zeros(batch_size, 1, q_length, kv_length)
    mask.mask_function = mask_function  # pyright: ignore[reportAttributeAccessIssue]
    return mask


transformers.AttentionInterface.register(_NAME, _record)
transformers.AttentionMaskInterface.register(_NAME, _make_mask)


# --- from queries and keys to frequencies ---------------------------------------------------------


def _measure_rotation(
    call: _Call, control: _Call, positions: list[int], buffers: list[np.ndarray]
) -> tuple[np.ndarray, float]:
    """Return the rotation that turns the queries and keys of `control` into those of `call`.

    Its frequencies, empty without rotation, and its scale.

    Args:
      call: with rotation, at `positions`.
      control: without.
      positions: of the tokens; the first two are 0 and 1.
      buffers: vectors that may be the frequencies in full precision.
    """
    rotated, plain = (np.concatenate([x.query_NTH, x.key_KTH]) for x in (call, control))
    lengths = np.linalg.norm(call.query_NTH, axis=-1)  # a factor of queries is not the rotation's
    size = call.query_NTH.shape[0]
    rotated[:size] *= (lengths[:, :1] / lengths)[..., None]
    # The slowest pairs of a large base hardly move. Keys have no factor that rounds the others.
    moved = (call.key_KTH != control.key_KTH).any(axis=(0, 1))
    if not moved.any():
        return np.zeros(0), 1.0
    for first, second in _pairings(moved):
        plain_NTR = plain[..., first] + 1j * plain[..., second]
        rotated_NTR = rotated[..., first] + 1j * rotated[..., second]
        power = (np.abs(plain_NTR) ** 2).sum(0)
        turn_TR = (plain_NTR.conj() * rotated_NTR).sum(0) / power
        error = np.abs(rotated_NTR - turn_TR * plain_NTR).max()
        if error < 1e-5 * np.abs(plain).max():
            inv_freq = _refine(np.angle(turn_TR / turn_TR[0]), positions)
            exact = (
                buffer
                for buffer in buffers
                if inv_freq.shape == buffer.shape
                and np.allclose(inv_freq, buffer, rtol=1e-6, atol=1e-6 / positions[-1])
            )
            return np.abs(next(exact, inv_freq)), float(np.abs(turn_TR[0]).mean()) ** 2
    raise _UnmeasuredError("its code does not rotate pairs of features")


def _pairings(moved_H: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the features that may be the first and the second of each pair.

    The two halves of the features that move, or neighbors among them. If the slowest pairs do not
    turn, two blocks move, and the features behind each belong to the pairs.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], moved_H, [False]])))
    start, end = edges[0], edges[-1]
    if edges.size == 4 and edges[1] - start == end - edges[2]:
        end = start + 2 * (edges[2] - start)
    half = (end - start) // 2
    if (end - start) % 2 == 0 and end <= moved_H.size:
        yield np.arange(start, start + half), np.arange(start + half, end)
        yield np.arange(start, end, 2), np.arange(start + 1, end, 2)


def _refine(angles_TR: np.ndarray, positions: list[int]) -> np.ndarray:
    """Return frequencies from angles at growing positions, each known up to whole turns."""
    inv_freq = angles_TR[1] / positions[1]
    for angles, position in zip(angles_TR[2:], positions[2:], strict=True):
        turns = np.round((inv_freq * position - angles) / (2 * np.pi))
        inv_freq = (angles + 2 * np.pi * turns) / position
    return inv_freq


def _measure_query_scale(call: _Call, last: int) -> str:
    """Describe the factor of queries that depends on their position."""
    lengths = np.linalg.norm(call.query_NTH, axis=-1)
    factor = float((lengths[:, -1] / lengths[:, 0]).mean())
    return f"{factor:.6g} at position {last:,}" if abs(factor - 1) > 1e-5 else ""


@functools.lru_cache(maxsize=8)  # layers of one kind share their mask
def _measure_window(allows: Any, context: int) -> tuple[int | None, str]:
    """Return the tokens that a query attends to, and the kind of layer that this makes."""
    zero, last = torch.tensor(0), 2 * max(context, _LONGEST_WINDOW)

    def first_key(query: int) -> int:
        """Return the first key that a query attends to."""
        allowed = allows(zero, zero, torch.tensor(query), torch.arange(query + 1))
        allowed = torch.as_tensor(allowed).broadcast_to(query + 1)
        first = int(allowed.int().argmax())
        if not allowed[first:].all():
            raise _UnmeasuredError("its attention mask has holes")
        return first

    first = first_key(last)
    if first == 0:
        return None, "full_attention"
    if first_key(last - 1) == first - 1:
        return last - first + 1, "sliding_attention"
    return first - first_key(first - 1), "chunked_attention"
