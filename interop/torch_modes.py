"""Modes of torch in which a model runs without weights. Needs torch, so it is imported late."""

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.overrides import TorchFunctionMode  # pyright: ignore[reportMissingImports]

_MOST_OUTPUTS = 2**20  # features of a linear layer
_MOST_REAL = 2**20  # numbers of a tensor that is made


class WithoutWeights(TorchFunctionMode):
    """Creates matrices without memory, on the device `meta`; vectors and buffers are real."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call a function of torch."""
        kwargs = kwargs or {}
        if func not in (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand):
            return func(*args, **kwargs)
        tensor = func(*args, **{**kwargs, "device": "meta"})
        if tensor.numel() > _MOST_REAL or (func is torch.empty and tensor.ndim > 1):
            return tensor
        return (
            torch.ones(tensor.shape, dtype=tensor.dtype)
            if func is torch.empty
            else func(*args, **kwargs)
        )


class FixedOutputs(TorchFunctionMode):
    """Runs linear layers and embeddings as fixed vectors, which depend on their size only.

    An operation on real tensors and tensors of the device `meta` gives one of `meta`.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call a function of torch."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.linear:
            inputs, weight = args[:2]
            return _fixed(weight.shape[0]).expand(*inputs.shape[:-1], weight.shape[0]).clone()
        if func is torch.nn.functional.embedding:
            inputs, weight = args[:2]
            return _fixed(weight.shape[1]).expand(*inputs.shape, weight.shape[1]).clone()
        devices: set[str] = set()
        _map(lambda tensor: devices.add(tensor.device.type), (args, kwargs))
        if len(devices) > 1:
            args, kwargs = _map(lambda tensor: tensor.to("meta"), (args, kwargs))
        result = func(*args, **kwargs)
        # States of recurrent layers are large, and no query or key is.
        is_large = isinstance(result, torch.Tensor) and result.numel() > _MOST_REAL
        return result.to("meta") if is_large else result


def _fixed(size: int) -> torch.Tensor:
    if size > _MOST_OUTPUTS:
        raise ValueError(f"a layer of {size:,} outputs (allowed: {_MOST_OUTPUTS:,})")
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
