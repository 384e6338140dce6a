"""The Llama-like decoder: embed, a scan over one block, norm, unembed.

Parameters are nested dicts of arrays, blocks stacked in front (`[L, ...]`), so that compile time
does not grow with depth and a sweep can `vmap` over members.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from model import vocabulary
from model.attention import Attention
from model.axes import (
    all_but_gathered,
    from_stream,
    on_one_cpu,
    over_stream,
    to_stream,
    weights_are_gathered,
)
from model.config import ModelConfig
from model.layers import Mlp, RMSNorm, normal_param
from model.mla import LatentAttention
from model.positions import PositionTable, cos_sin

Params = dict[str, Any]

# Names by `checkpoint_name`. The MLP's output is not among them: nothing going back reads it.
_ATTENTION = ["query", "key", "value", "attention_out"]


def _offload(*names: str) -> Callable:
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst="pinned_host",
    )


REMAT_POLICIES = {
    "none": all_but_gathered,
    "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    "qkv": jax.checkpoint_policies.save_only_these_names(*_ATTENTION),
    "full": jax.checkpoint_policies.nothing_saveable,
    "offload_qkv": _offload("block_input", *_ATTENTION),
    "offload": _offload("block_input"),
}


class Block(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        self.attention_norm = RMSNorm(config.embed_dim, config.norm_epsilon)
        attention = Attention if config.mla is None else LatentAttention
        self.attention = attention(config, rngs=rngs)
        self.mlp_norm = RMSNorm(config.embed_dim, config.norm_epsilon)
        self.mlp = Mlp(config, rngs=rngs)

    def __call__(
        self, x_BTD, table: PositionTable, cos_sin, positions_BT, segment_ids_BT
    ) -> jax.Array:
        """One layer; `table` and `cos_sin` are as in `Attention`."""
        normed_BTD = from_stream(self.attention_norm(x_BTD))
        found_BTD = self.attention(normed_BTD, table, cos_sin, positions_BT, segment_ids_BT)
        x_BTD = x_BTD + checkpoint_name(to_stream(found_BTD), "attention_out")
        return x_BTD + to_stream(self.mlp(from_stream(self.mlp_norm(x_BTD))))


class Inside(NamedTuple):
    """What every layer computes on the way; the layers stand in front.

    Attributes:
      q_LBTNH, k_LBSKH, v_LBSKU: queries and keys before rotation and scales, and values. A pair is
        the features i and i + H / 2, in the order of `model.rotary.table`; with MLA, whose rotated
        pairs come first, K is N.
      stream_LBTD: the residual stream that enters the layer.
    """

    q_LBTNH: Any
    k_LBSKH: Any
    v_LBSKU: Any
    stream_LBTD: Any


class Transformer(nnx.Module):
    """Holds the parameters; `hidden` and `unembed` below are what the rest of the code calls."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        V, D = config.vocab_size, config.embed_dim
        self.embedding = normal_param(rngs, (V, D), ("vocab", "embed"), fan_in=D)

        @nnx.split_rngs(splits=config.num_layers)
        @nnx.vmap
        def stack_blocks(rngs):
            return Block(config, rngs=rngs)

        self.blocks = stack_blocks(rngs)
        self.final_norm = RMSNorm(D, config.norm_epsilon)
        if not config.tie_embeddings:
            self.output = normal_param(rngs, (V, D), ("vocab", "embed"), fan_in=D)
        self.config = config

    def __call__(
        self,
        table: PositionTable,
        tokens_BT,
        positions_BT,
        segment_ids_BT,
        *,
        look_inside: bool = False,
    ) -> tuple[jax.Array, Inside | None]:
        """Maps token ids to normalized hidden states `[B, T, D]`, and what is inside if asked."""
        dtype = self.config.compute_dtype

        def look_up(embedding_VD, tokens_BT):
            return vocabulary.look_up(vocabulary.gathered(embedding_VD, dtype), tokens_BT, dtype)

        x_BTD = over_stream(vocabulary.on_parts(look_up)(self.embedding[...], tokens_BT))
        layers_cos_sin = _cos_sin_of_layers(table, positions_BT)
        # NNX modules cannot be scanned over, their parameters can: each step puts a block together.
        block_graph, block_params = nnx.split(self.blocks)

        def layer(x_BTD, layer_inputs):
            params, layer_table, layer_cos_sin = layer_inputs
            x_BTD = checkpoint_name(x_BTD, "block_input")
            block = nnx.merge(block_graph, params)
            inside = None
            if look_inside:
                # The block computes these itself, once more in words and once in all: XLA sees it.
                q_k_v = block.attention.unrotated(block.attention_norm(x_BTD), positions_BT)
                inside = Inside(*q_k_v, x_BTD)
            x_BTD = block(x_BTD, layer_table, layer_cos_sin, positions_BT, segment_ids_BT)
            return over_stream(x_BTD), inside

        if self.config.remat != "none" or weights_are_gathered():
            policy = REMAT_POLICIES[self.config.remat]
            layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
        x_BTD, inside = jax.lax.scan(layer, x_BTD, (block_params, table, layers_cos_sin))
        return self.final_norm(x_BTD), inside


def _cos_sin_of_layers(table: PositionTable, positions_BT: jax.Array):
    """Cosines and sines of all layers, `[L, B, T, K, R]`, before any layer reads them."""
    if not on_one_cpu():
        return jax.vmap(cos_sin, in_axes=(0, 0, None))(
            table.cycles_hi, table.cycles_lo, positions_BT
        )
    # XLA on a CPU would compute them anew for every head that reads them, forwards and backwards:
    # into a loop it does not reach. (A loop of one turn it takes apart, hence rows of layers.)
    L, B = len(table.cycles_hi), len(positions_BT)
    cycles = (jnp.repeat(words, B, axis=0) for words in (table.cycles_hi, table.cycles_lo))
    rows = jax.lax.map(lambda row: cos_sin(*row), (*cycles, jnp.tile(positions_BT, (L, 1))))
    return jax.tree.map(lambda x: x.reshape(L, B, *x.shape[1:]), rows)


def init(config: ModelConfig, seed: jax.Array | int) -> Params:
    """Fresh float32 parameters; `seed` may be traced."""
    model = Transformer(config, rngs=nnx.Rngs(params=jax.random.key(seed)))
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@functools.cache
def _skeleton(config: ModelConfig):
    """The module's structure, without arrays."""
    return nnx.split(nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(params=0))))


def _module(config: ModelConfig, params: Params) -> Transformer:
    """The network that holds `params`: the one place where a tree of arrays becomes a module."""
    graph, state = _skeleton(config)
    state = nnx.clone(state)  # the skeleton is shared by all who ask for this config
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def abstract_params(config: ModelConfig) -> Params:
    """Shapes and dtypes of `init`, without computing anything."""
    return nnx.to_pure_dict(_skeleton(config)[1])


def parameter_axes(config: ModelConfig) -> Params:
    """The logical axes of every parameter, as a tree of tuples; "layers" leads in blocks."""
    _, state = _skeleton(config)

    def axes(path, variable):
        stacked = ("layers",) if path[0] == "blocks" else ()
        return stacked + tuple(variable.get_metadata()["axes"])

    leaves = {path: axes(path, variable) for path, variable in state.flat_state()}
    return nnx.traversals.unflatten_mapping(leaves)


def hidden(
    config: ModelConfig,
    params: Params,
    table: PositionTable,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segment_ids_BT: jax.Array,
) -> jax.Array:
    """Hidden states after the last norm, `[B, T, D]` in the compute dtype.

    Args:
      config: the network; its `rotary` is not read, `table` is.
      params: as `init` makes them.
      table: `model.positions.position_table(config, trained context)`.
      tokens_BT: int32 ids.
      positions_BT: int32, place within the document.
      segment_ids_BT: int32, document of each token; attention never crosses documents.
    """
    return _module(config, params)(table, tokens_BT, positions_BT, segment_ids_BT)[0]


def look_inside(
    config: ModelConfig,
    params: Params,
    table: PositionTable,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segment_ids_BT: jax.Array,
) -> tuple[jax.Array, Inside]:
    """As `hidden`, with what every layer computes on the way."""
    module = _module(config, params)
    hidden_BTD, inside = module(table, tokens_BT, positions_BT, segment_ids_BT, look_inside=True)
    assert inside is not None  # it was asked for
    return hidden_BTD, inside


def without_heads(params: Params, heads: Iterable[tuple[int, int]]) -> Params:
    """The network with some of its attention heads taken out: what they find goes nowhere.

    Args:
      params: of one member; left as they are.
      heads: (layer, query head) pairs, from 0.

    Returns:
      Parameters that differ in the heads' rows of the output projection, which are 0.

    Raises:
      ValueError: if there is no such head.
    """
    attention = params["blocks"]["attention"]
    out_LNUD = attention["out"]
    L, N = out_LNUD.shape[:2]
    for layer, head in heads:
        if not (0 <= layer < L and 0 <= head < N):
            raise ValueError(
                f"no head {head} in layer {layer}: layers are 0 to {L - 1}, heads 0 to {N - 1}"
            )
        out_LNUD = jnp.asarray(out_LNUD).at[layer, head].set(0)
    blocks = {**params["blocks"], "attention": {**attention, "out": out_LNUD}}
    return {**params, "blocks": blocks}


def without_pairs(config: ModelConfig, params: Params, pairs_LNR: np.ndarray) -> Params:
    """The network with some pairs of its heads' features taken out: logits are made of the rest.

    Args:
      config: the network.
      params: of one member; left as they are.
      pairs_LNR: bool, which pairs of each query head, in the order of `Inside`.

    Returns:
      Parameters that differ in these features of the queries, which are 0.

    Raises:
      ValueError: if heads of a layer lose different pairs, and one norm scales the queries of all.
    """
    attention = params["blocks"]["attention"]
    if config.qk_norm:
        # Before the norm a missing feature would change the others.
        if (pairs_LNR != pairs_LNR[:, :1]).any():
            raise ValueError(
                "qk_norm scales the queries of all heads alike: take the same pairs out of every "
                "head of a layer"
            )
        scale_LH = jnp.where(np.tile(pairs_LNR[:, 0], 2), 0, attention["query_norm"]["scale"])
        attention = {**attention, "query_norm": {"scale": scale_LH}}
    else:
        name, halves = "query", [pairs_LNR, pairs_LNR]
        if config.mla is not None:
            rotated, rest = np.split(pairs_LNR, [config.rope_head_dim // 2], axis=-1)
            halves = [rest, rest, rotated, rotated]
            name = "query" if config.mla.q_lora_rank is None else "query_up"
        features_LNH = np.concatenate(halves, axis=-1)
        query = jnp.where(features_LNH[:, None], 0, attention[name])
        attention = {**attention, name: query}
        if config.qkv_bias:
            attention["query_bias"] = jnp.where(features_LNH, 0, attention["query_bias"])
    return {**params, "blocks": {**params["blocks"], "attention": attention}}


def output_matrix(config: ModelConfig, params: Params) -> jax.Array:
    """The matrix `[V, D]` that makes logits."""
    return params["embedding" if config.tie_embeddings else "output"]


def logits(output_VD: jax.Array, x_BTD: jax.Array) -> jax.Array:
    """Float32 vocabulary logits `[B, T, V]` of hidden states."""
    return jnp.einsum(
        "BTD,VD->BTV", x_BTD, output_VD.astype(x_BTD.dtype), preferred_element_type=jnp.float32
    )


def unembed(config: ModelConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """As `logits`, with the model's own matrix."""
    return logits(output_matrix(config, params), x_BTD)


def count_params(config: ModelConfig) -> dict[str, int]:
    """Parameters in all, and those that take part in matrix products (input embedding left out)."""
    total = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))
    embedding = config.vocab_size * config.embed_dim
    return {"total": total, "matmul": total if config.tie_embeddings else total - embedding}


def count_cached(config: ModelConfig) -> int:
    """Numbers a generation cache keeps of each token, over all layers.

    Keys and values of every key head; for MLA the latent and the one rotated key.
    """
    if config.mla is not None:
        return config.num_layers * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim)
    return config.num_layers * 2 * config.kv_heads * config.head_dim


def describe_size(config: ModelConfig) -> str:
    """Parameters and cache in words; for MLA beside plain attention with the same heads."""
    size = (
        f"{count_params(config)['total']:,} parameters, {count_cached(config):,} cached per token"
    )
    if config.mla is None:
        return size
    plain = dataclasses.replace(config, mla=None, head_dim=config.mla.v_head_dim)
    return f"{size} (with plain attention: {describe_size(plain)})"
