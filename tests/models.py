"""Small models that tests share."""

from typing import Any

from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.nope import Nope


def small_model(**changes: Any) -> ModelConfig:
    """Return a model of one layer with one head of 8 features."""
    sizes = dict(vocab_size=64, embed_dim=16, num_layers=1, num_heads=1, num_kv_heads=1)
    return ModelConfig(**(sizes | dict(head_dim=8, mlp_dim=16, rotary=Nope()) | changes))
