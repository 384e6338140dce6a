"""Audit of a published model's rotary settings, from its config alone."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.interop import hf_config, layers
from ropewalk.interop.architectures import IMPORTED_TYPES
from ropewalk.interop.layers import LayerGroup, PublishedModel
from ropewalk.interop.transformers_model import has_transformers
from ropewalk.theory import decay
from ropewalk.theory.command_line import format_table
from ropewalk.theory.smallest_bases import smallest_base
from ropewalk.utils.messages import counted, one_line, print_note, printable, quoted

_ADVICE = ". To audit models that cannot be imported, install transformers: pip install '.[hf]'"
_MAX_CONTEXT = 2**24  # tokens
_SEARCHED = 2**21  # tokens, at least, in which a first violation is searched


def read_model(path: Path) -> PublishedModel:
    """Return the layers of a config.json, or of a folder that has one.

    Raises:
      ValueError: if there is none, or it is not allowed, or nothing knows its model type.
    """
    return read_layers(hf_config.read_config(path))


def read_layers(config: Mapping[str, Any]) -> PublishedModel:
    """Return the layers of a config.json.

    transformers says what it means. Without transformers only the families that can be imported
    are read.

    Raises:
      ValueError: if nothing knows the model type, a value is not allowed, or no layer rotates.
    """
    imported = None
    with contextlib.suppress(ValueError):  # most types are not imported
        imported = layers.imported_layers(config)
    read = layers.imported_layers
    if has_transformers() and str(config.get("model_type")) not in IMPORTED_TYPES:
        from ropewalk.interop.measured_layers import measure as read  # late: transformers
    try:
        model = read(config)
    except ValueError as error:
        # If transformers itself failed: older files have values that only an import still reads.
        if not (imported and error.__cause__):
            advice = "" if has_transformers() else _ADVICE
            raise ValueError(f"{one_line(str(error), 300)}{advice}") from error
        reason = one_line(str(error).removeprefix("config.json: "), 200)
        print_note(None, f"{reason}; the audit reads the config as an import does")
        model = imported
    if imported and (difference := layers.find_difference(model, imported)):
        raise ValueError(
            f"config.json: {difference} from an import's, which reads keys as version 4 of "
            "transformers does; state rope_parameters for each type of layer, without truncate"
        )
    nested = config.get("text_config")
    keys = {**config, **nested} if isinstance(nested, Mapping) else config
    for name in ("model_max_length", "max_sequence_length"):  # Command R, Vicuna 16k
        longest = keys.get(name)
        if isinstance(longest, int) and model.context < longest <= _MAX_CONTEXT:
            model = model._replace(context=longest)
    if not any(group.inv_freq.size for group in model.groups):
        raise ValueError(
            f"config.json: model_type {quoted(config.get('model_type'), 40)}: no layer rotates "
            "queries and keys, so there is nothing to audit"
        )
    return model


def audit(model: PublishedModel) -> dict[str, Any]:
    """Return all facts about a model's rotation as JSON values."""
    return {
        "model_type": model.model_type,
        "context": model.context,
        "layers_without_heads": model.num_without,
        "groups": [_group_facts(model, group) for group in model.groups],
    }


def _group_facts(model: PublishedModel, group: LayerGroup) -> dict[str, Any]:
    # Positions beyond a layer's window never meet.
    reach = min(model.context, group.window or model.context)
    limit = max(2 * reach, _SEARCHED)
    inv_freq = group.all_inv_freq
    first = decay.first_violation(inv_freq, limit)
    turning = group.inv_freq[group.inv_freq != 0]
    periods = np.sort(2 * np.pi / np.abs(turning))[::-1]
    # With unrotated pairs the bound is smaller, and with half of them there is none.
    all_turn = 2 * turning.size == group.head_dim
    return {
        "layers": list(group.layers),
        "kind": group.kind,
        "rope": group.rope,
        "inv_freq": group.inv_freq.tolist(),
        "head_dim": group.head_dim,
        "rotated": 2 * turning.size,
        "logit_scale": group.scales.rotated,
        "unrotated_logit_scale": group.scales.unrotated,
        "query_scale": group.query_scale,
        "window": group.window,
        "reach": reach,
        "first_violation": first,
        "checked_up_to": limit - 1 if first is None else first,
        "covers": first is None or first >= reach,
        "smallest_base": smallest_base(group.head_dim, reach) if all_turn and reach > 1 else None,
        "slowest_periods": periods[:3].tolist(),
        "critical_dimension": 2 * int((periods <= reach).sum()),
        "never_complete": float((periods > reach).mean()) if turning.size else None,
    }


def describe_rope(facts: dict[str, Any]) -> str:
    """Describe the rope parameters of one group of layers in one line."""
    rope = facts["rope"]
    if not rope:
        return "none (NoPE)"
    base = rope["rope_theta"]
    text = f"base {base:,.10g}" if base else "no known formula"
    kind, factor = rope["rope_type"], rope.get("factor")
    if kind != "default":
        original = rope.get("original_max_position_embeddings")
        text += f", {kind}" + (f" x{factor:g}" if (factor or 1) != 1 else "")
        text += f" from {original:,}" if original else ""
    return text


def describe_layers(facts: dict[str, Any]) -> str:
    """Describe the layers of one group: their number and kind."""
    return f"{len(facts['layers'])} {_short_kind(facts['kind'])}"


def _short_kind(kind: str) -> str:
    return kind.removesuffix("_attention")


# Columns of numbers; a table of several models has the first six.
_NUMBERS = ["rotated", "reach", "first B_m<0", "beyond reach", "smallest base", "never complete"]
_NUMBERS += ["slowest period", "critical dimension", "logits"]
_CAPTION = (
    "reach: the context or, with a window, the window. first B_m<0: first distance at which a "
    "random key beats a similar one in the model of Men et al. 2024; none: not within 2 million "
    "tokens. It is no limit: trained models recall text beyond it (docs/recall.md). smallest "
    "base: of plain RoPE with B_m >= 0 in the reach, certified; -: not computed, or unrotated "
    "pairs. never complete: share of the rotated pairs that complete no cycle within the reach"
)
_MORE = "critical dimension: features of the pairs that do. logits: factor of q·k."


def as_text(facts: dict[str, Any], name: str) -> str:
    """Return an audit as a table, and notes on its groups of layers."""
    groups, context = facts["groups"], facts["context"]
    parts = [
        format_table(
            ["layers", "rotation"],
            _NUMBERS,
            [[describe_layers(group), describe_rope(group), *_cells(group)] for group in groups],
            title=f"{name}: {facts['model_type']}, context {context:,} tokens",
            caption=f"{_CAPTION}. {_MORE}",
        )
    ]
    parts += [f"{describe_layers(group)}: {_verdict(group)}" for group in groups]
    parts += [f"{describe_layers(group)}: {note}" for group in groups if (note := _stretch(group))]
    scales = {group["query_scale"] for group in groups} - {""}
    parts += [f"queries at position p are multiplied by {scale}" for scale in scales]
    if facts["layers_without_heads"]:
        parts.append(f"no attention heads: {counted(facts['layers_without_heads'], 'layers')}")
    return printable("\n".join(parts))


def as_rows(rows: list[dict[str, Any]]) -> str:
    """Return one table of groups of layers of several models."""
    return format_table(
        ["model", "layers", "rotation"],
        _NUMBERS[:6],
        [[r["model"], describe_layers(r), describe_rope(r), *_cells(r)[:6]] for r in rows],
        title="Rotation of published models",
        caption=_CAPTION,
        optional=["never complete", "rotated"],
    )


def _verdict(group: dict[str, Any]) -> str:
    first, reach = group["first_violation"], group["reach"]
    if first is None:
        return f"B_m >= 0 at every distance up to {group['checked_up_to']:,}"
    where = "beyond" if group["covers"] else "within"
    return f"B_m < 0 first at {first:,} tokens, {where} the reach of {reach:,}"


def _stretch(group: dict[str, Any]) -> str:
    """Return a note on YaRN for more tokens than the reach, or ""; Qwen's cards ask for that."""
    rope, reach = group["rope"], group["reach"]
    stretched = (rope.get("original_max_position_embeddings") or 0) * (rope.get("factor") or 1)
    if rope.get("rope_type") != "yarn" or min(stretched, group["window"] or stretched) <= reach:
        return ""
    return (
        f"yarn stretches the context to {stretched:,.0f} tokens, beyond the reach of {reach:,}; to "
        f"audit that, set max_position_embeddings to {stretched:.0f}"
    )


def _cells(group: dict[str, Any]) -> list[str]:
    """Return the cells of numbers of one group."""
    first, base, never = (group[k] for k in ("first_violation", "smallest_base", "never_complete"))
    return [
        f"{group['rotated']}/{group['head_dim']}",
        f"{group['reach']:,}",
        "none" if first is None else f"{first:,}",
        "yes" if group["covers"] else "no",
        "-" if base is None else f"{base:.9g}",
        "-" if never is None else f"{never:.0%}",
        f"{group['slowest_periods'][0]:,.0f}" if group["slowest_periods"] else "-",
        str(group["critical_dimension"]),
        f"x {group['logit_scale']:.4g}",
    ]
