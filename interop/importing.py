"""Makes a run of a Hugging Face folder: python -m interop import FOLDER RUN

What comes out is a run directory at step 0: evaluate it, look into it, or train on from it with
`start_from=RUN`. Its rotary variant is the file's, its trained context max_position_embeddings, and
its parameters keep the file's dtype. Tensors are read one layer at a time and written one stacked
array at a time. Which models are read: docs/interop.md.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data.config import DataConfig
from data.tokenizer import Tokenizer
from experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from experiment.digest import named
from experiment.run import RunDirectory
from experiment.streamed import put, write_params
from interop import card, check, rotary_config
from interop.architectures import Facts, choose, config_json
from interop.check import Subject
from interop.published import Published, published, read_config
from interop.rotary_config import Head
from interop.tensors import Tensors, digest
from interop.weights import Entry, Layout, entries
from model import rotary as rotary_lib
from model.config import ModelConfig
from model.transformer import Params, abstract_params, describe_size
from utils.messages import quoted
from utils.paths import local

# How much more alike neighbours must be than what should be pairs, to be the pairs themselves.
_SWAPPED = 1.6
_FEWEST_PAIRS = 128  # in all: of noise, fewer might come out so by chance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of the command line."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="config.json, *.safetensors")
    parser.add_argument("run_path", metavar="RUN", help="the run directory that is made; new")
    parser.add_argument(
        "--context-length",
        type=int,
        metavar="TOKENS",
        help="trained context (default: max_position_embeddings); of Phi-3 it says which of its "
        "lists of frequencies",
    )
    parser.add_argument(
        "--layout",
        choices=("auto", "half", "interleaved"),
        default="auto",
        help="features that make a pair in queries and keys (default: the format's rule)",
    )
    parser.add_argument(
        "--no-compare",
        action="store_true",
        help="do not compare logits with transformers; takes less memory and time",
    )


def main(arguments: argparse.Namespace) -> int:
    """The command."""
    run = import_folder(
        arguments.folder,
        arguments.run_path,
        context_length=arguments.context_length,
        layout=arguments.layout,
        compare=not arguments.no_compare,
    )
    model = run.config.model
    print(f"{run.path}: {describe_size(model)}, {rotary_lib.label(model.rotary)}", file=sys.stderr)
    print(f"Next: python evaluate.py {run.path}, or start_from={run.path}", file=sys.stderr)
    return 0


def import_folder(
    folder: str | Path,
    run_path: str | Path,
    *,
    context_length: int | None = None,
    layout: str = "auto",
    compare: bool = True,
) -> RunDirectory:
    """Makes a run of a Hugging Face folder; the run has its name once it is whole.

    Args:
      folder: config.json, safetensors and, if there are some, tokenizer files.
      run_path: the run directory; must not exist.
      context_length: trained context, tokens; None: max_position_embeddings.
      layout: "half" or "interleaved" against the format's rule; "auto" keeps to it, and refuses
        queries and keys that look as if they did not.
      compare: whether logits are compared with transformers' own, where it is installed.

    Raises:
      ValueError: if the run is there already, the folder holds no model that ours can be, a
        tensor is not finite, the folder is not what its `logit_check.json` was written for, or
        transformers computes other logits.
    """
    folder, path = local(folder), local(run_path)
    if path.exists():
        raise ValueError(f"{path} is there already; delete it, or name another directory")
    config = read_config(folder)
    name = folder.resolve().name
    source = published(config, name, context_length)
    tensors = Tensors(folder)
    table = _table(source, layout)
    _check(source.model, table, tensors)
    if layout == "auto" and source.model.mla is None and source.layout == "half":
        _check_pairs(source.model, table, tensors)
    _say_what_was_read(source, config)
    tensors_digest = digest(tensors, _names(source.model, table))
    check.check_record(folder, source.model, source.context, tensors_digest)
    why_not = _why_not_compared(source, layout) if compare else "--no-compare"
    tokenizer = _tokenizer(folder, source.model)
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        run = RunDirectory(part)
        tokenizer_path = str(path / tokenizer.file_name) if tokenizer else None
        run.write_config(
            _config(source, name, tokenizer_path), (), tokenizer.fingerprint if tokenizer else None
        )
        origin = {"name": name, "model_type": source.architecture.model_type, "config": config}
        _note(run, {**origin, "context": source.context, "tensors": tensors_digest})
        if tokenizer:
            (part / tokenizer.file_name).write_bytes(tokenizer.model)
        leaves = _arrays(source.model, table, tensors)
        write_params(run, 0, leaves, list(named(abstract_params(source.model))))
        if why_not:
            print(f"The logits were not compared with transformers': {why_not}", file=sys.stderr)
        else:
            _compare(source, table, tensors, config)
        os.rename(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return RunDirectory(path)


def _table(source: Published, layout: str) -> list[Entry]:
    """The entries, read as `layout` says where the format leaves a choice."""
    chosen: Layout = source.layout
    if layout != "auto" and chosen != "partial":
        chosen = "interleaved" if layout == "interleaved" else "half"
    return entries(source.model, chosen, fused=source.architecture.fused)


def _names(model: ModelConfig, table: list[Entry]) -> list[str]:
    """Return the names of all tensors of a folder that the model reads."""
    layers = range(model.num_layers)
    return [e.theirs.format(layer=i) for e in table for i in (layers if e.is_stacked else [0])]


def _say_what_was_read(source: Published, config: Mapping[str, Any]) -> None:
    """Print what a reader of config.json may take otherwise than this import does."""
    for key in source.unread:
        print(
            f"config.json: {key} is ignored, as {source.architecture.class_name} ignores it; in "
            "another class it would change the logits",
            file=sys.stderr,
        )
    rope, head = _longrope(source, config)
    chosen = rotary_config.chosen_list(rope, head, source.context)
    if chosen:
        original = rope.get("original_max_position_embeddings", head.context)
        print(
            f"config.json has two lists of rotary factors, for rows of up to {original:,} tokens "
            f"and for longer ones: {chosen} was chosen, for the trained context of "
            f"{source.context:,} tokens (--context-length chooses the other)",
            file=sys.stderr,
        )


def _longrope(source: Published, config: Mapping[str, Any]) -> tuple[dict[str, Any], Head]:
    """Return the rope parameters, {} where they differ by layer, and what else decides them."""
    head = Head(source.model.rope_head_dim, config["max_position_embeddings"])
    by_window = source.architecture.ropes == "by window"
    return ({} if by_window else rotary_config.of_config(config)), head


def _why_not_compared(source: Published, layout: str) -> str:
    """Return why logits cannot be compared with transformers', or "" where they can."""
    if not check.has_transformers():
        return "it is not installed (pip install '.[hf]')"
    if layout not in ("auto", source.layout):
        return f"it does not read the folder as --layout {layout} does"
    if not check.fits_in_memory(source.model):
        return "the model is above 4 GiB in float32"
    try:
        choose(source.model, source.architecture.model_type)
    except ValueError as error:
        return str(error)
    return ""


def _compare(
    source: Published, table: list[Entry], tensors: Tensors, config: Mapping[str, Any]
) -> None:
    """Refuse an import whose logits are not those that transformers computes from the folder."""
    params: Params = {}
    for name, leaf in _arrays(source.model, table, tensors):
        put(params, name, np.asarray(leaf, np.float32))
    rope, head = _longrope(source, config)
    chosen = rotary_config.chosen_list(rope, head, source.context)
    lengths = [
        length
        for length in check.compared_lengths(source.context)
        if rotary_config.chosen_list(rope, head, length) == chosen
    ]
    compared = check.compare(
        Subject(
            folder=tensors.folder,
            hf_config=config_json(source.architecture, source.model, Facts(context=source.context)),
            config=source.model,
            context=source.context,
            entries=table,
            params=params,
            lengths=lengths,
        )
    )
    for row in compared:
        print(card.compared_line(row), file=sys.stderr)
    check.refuse_different(compared, "transformers' logits")


def _config(source: Published, name: str, tokenizer: str | None) -> ExperimentConfig:
    """That of a run of no steps."""
    return ExperimentConfig(
        name=name,
        question=f"What does {name} do, as it was published?",
        model=source.model,
        data=DataConfig(
            tokenizer=tokenizer,
            vocab_size=source.model.vocab_size,
            context_length=source.context,
            batch_size=1,
        ),
        train=TrainConfig(num_steps=1, learning_rate=1e-5),
        evals=EvalConfig(tasks=("perplexity",)),
    )


def _note(run: RunDirectory, imported: dict[str, Any]) -> None:
    """Adds to config.json where the run came from."""
    path = run.path / "config.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"imported": imported, **record}, indent=2) + "\n", encoding="utf-8")


def _tokenizer(folder: Path, model: ModelConfig) -> Tokenizer | None:
    # Late: what reads tokenizers of other kinds is an extra.
    from interop.tokenizer_files import read_tokenizer

    if not any((folder / name).exists() for name in ("tokenizer.model", "tokenizer.json")):
        print(f"{folder} has no tokenizer: the run takes ids, and no text", file=sys.stderr)
        return None
    tokenizer = Tokenizer(read_tokenizer(folder))
    if tokenizer.vocab_size > model.vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids and the model "
            f"{model.vocab_size}; they do not belong together"
        )
    return tokenizer


def _check(model: ModelConfig, table: list[Entry], tensors: Tensors) -> None:
    """Refuses a tensor that is missing, of another shape, or that nothing here has a place for."""
    leaves, layers = named(abstract_params(model)), range(model.num_layers)
    known = dict(tensors.known)
    for entry in table:
        shapes = [leaves[name].shape[entry.is_stacked :] for name in entry.ours]
        # The functions only move numbers: what they make of one byte each has the shape.
        expected = entry.to_hf(*(np.broadcast_to(np.int8(0), shape) for shape in shapes)).shape
        kinds = set()
        for layer in layers if entry.is_stacked else [0]:
            name = entry.theirs.format(layer=layer)
            actual = known.pop(name, None)
            if actual is None:
                raise ValueError(f"{tensors.folder} lacks the tensor {name}")
            if actual.shape != expected:
                raise ValueError(
                    f"{tensors.folder}: {name} is {list(actual.shape)}, and config.json makes it "
                    f"{list(expected)}"
                )
            kinds.add(actual.dtype.name)
        if len(kinds) > 1:
            everywhere, listed = entry.theirs.format(layer="*"), " and ".join(sorted(kinds))
            raise ValueError(
                f"{tensors.folder}: {everywhere} is {listed} in different layers; convert it to one"
            )
    known = {
        name: tensor for name, tensor in known.items() if not name.endswith("rotary_emb.inv_freq")
    }
    head = known.pop("lm_head.weight", None)
    if head is not None:  # tied: some files have it twice
        embedding = tensors.read("model.embed_tokens.weight")
        if tensors.read("lm_head.weight").tobytes() != embedding.tobytes():
            raise ValueError(
                f"{tensors.folder}: lm_head.weight is not the embedding, and config.json ties them"
            )
    if known:
        raise ValueError(
            f"{tensors.folder}: {quoted(min(known))} and {len(known) - 1} more tensors have no "
            "place in this model"
        )


def _check_pairs(model: ModelConfig, table: list[Entry], tensors: Tensors) -> None:
    """Refuses keys whose features pair up as neighbours: Meta's order, under the other's name.

    The two features of a pair turn into each other, so that training gives their rows about the
    same norm, while pairs of other frequencies have others. Untrained weights show nothing.
    """
    entry = next(candidate for candidate in table if candidate.ours[0] == "blocks.attention.key")
    norms = []
    for layer in range(min(4, model.num_layers)):
        (key_DKH,) = entry.from_hf(tensors.read(entry.theirs.format(layer=layer)))
        norms.append(np.linalg.norm(key_DKH.astype(np.float32), axis=0))
    if looks_interleaved(np.concatenate(norms)):
        raise ValueError(
            f"{tensors.folder}: queries and keys look interleaved (Meta's order), which this "
            "format is not; give --layout interleaved, or --layout half to take them as they are"
        )


def looks_interleaved(norms_KH: np.ndarray) -> bool:
    """True if neighbouring features are clearly more alike than those half a head apart.

    Args:
      norms_KH: of the features' rows, of heads that should have the latter for pairs.
    """
    if norms_KH.size // 2 < _FEWEST_PAIRS or not (norms_KH > 0).all():
        return False
    log_KH = np.log(norms_KH)
    first, second = np.split(log_KH, 2, axis=1)
    apart, next_to = np.abs(first - second), np.abs(log_KH[:, ::2] - log_KH[:, 1::2])
    return bool(apart.mean() > _SWAPPED * next_to.mean())


def _arrays(
    model: ModelConfig, table: list[Entry], tensors: Tensors
) -> Iterator[tuple[str, np.ndarray]]:
    """Every leaf, stacked over layers; of the file no more than one tensor is in memory."""
    leaves: Mapping[str, Any] = named(abstract_params(model))
    for entry in table:
        if not entry.is_stacked:
            (leaf,) = entry.from_hf(tensors.read(entry.theirs))
            yield entry.ours[0], np.ascontiguousarray(leaf)
            continue
        dtype = tensors.known[entry.theirs.format(layer=0)].dtype
        stacked = {name: np.empty(leaves[name].shape, dtype) for name in entry.ours}
        for layer in range(model.num_layers):
            parts = entry.from_hf(tensors.read(entry.theirs.format(layer=layer)))
            for name, part in zip(entry.ours, parts, strict=True):
                stacked[name][layer] = part
        for name in entry.ours:
            yield name, stacked.pop(name)
