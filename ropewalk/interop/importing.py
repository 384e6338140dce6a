"""Imports of Hugging Face folders and GGUF files as runs; `interop.__main__` has the command."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.config import DataConfig
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment.checkpoint import leaves_by_name, write_params
from ropewalk.experiment.config import EvalConfig, ExperimentConfig, TrainConfig
from ropewalk.experiment.run import PUBLISHED, RunDirectory
from ropewalk.interop import check
from ropewalk.interop.architectures import IMPORTED_TYPES, make_config
from ropewalk.interop.choose import choose_architecture
from ropewalk.interop.folders import find_source, new_folder
from ropewalk.interop.hf_config import HfModel, parse_config, read_config
from ropewalk.interop.tensors import Tensors, digest_tensors
from ropewalk.interop.tokenizer_files import drop_unused, find_tokenizer, puts_bos, read_published
from ropewalk.interop.transformers_model import as_folder, find_other_ids
from ropewalk.interop.weights import Entry
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.rope_parameters import read_rope
from ropewalk.model.transformer import abstract_params, describe_size
from ropewalk.utils.command_line import next_command
from ropewalk.utils.messages import printable, quoted
from ropewalk.utils.paths import local

# Pairs look interleaved if neighbors are this many times more alike than features half a head
# apart. With fewer pairs than this, noise could look so too.
_INTERLEAVED_RATIO = 1.6
_MIN_PAIRS = 128


def main(**options: Any) -> int:
    """Run the command."""
    run = import_folder(**options)
    model = run.config.model
    _print(f"{run.path}: {describe_size(model)}, {rotary_lib.label(model.rotary)}")
    _print(f"Next: {next_command('evaluate', run.path)}, or start_from={run.path}")
    return 0


def _print(text: str) -> None:
    print(printable(text), file=sys.stderr)


def import_folder(
    folder: str | Path,
    run_path: str | Path,
    *,
    context_length: int | None = None,
    layout: str = "auto",
    compare: bool = True,
) -> RunDirectory:
    """Import a Hugging Face folder as a run directory, which appears only when it is complete.

    Args:
      folder: config.json, safetensors files and optionally tokenizer files; or a GGUF file.
      run_path: new run directory.
      context_length: trained context, tokens; None: max_position_embeddings.
      layout: "half" or "interleaved" overrides the format's rule; "auto" follows the rule, and
        refuses queries and keys that look interleaved against it.
      compare: compare logits with transformers, if it is installed.

    Raises:
      ValueError: if the run exists, our model cannot represent the folder's, a tensor is not
        finite, the folder has changed since its `logit_check.json` was written, or transformers
        computes other logits.
    """
    source_path, name = find_source(folder), Path(folder).resolve().name
    with new_folder(run_path) as part, as_folder(source_path, part) as folder:
        hf_config, published = read_config(folder), read_published(folder)
        source = parse_config(hf_config, name, context_length)
        tensors, model = Tensors(folder), source.model
        rule = source.layout
        if layout != "auto" and rule != "partial":
            source = source._replace(layout="interleaved" if layout == "interleaved" else "half")
        entries = source.entries()
        _check_tensors(model, entries, tensors)
        if layout == "auto" and model.mla is None and source.layout == "half":
            _check_pairs(model, entries, tensors)
        _print_factors(source)
        digest = digest_tensors(tensors, (n for e in entries for n in e.names(model.num_layers)))
        check.check_record(folder, digest)
        reason = _reason_not_to_compare(source) if compare else "--no-compare"
        if compare and layout not in ("auto", rule):
            reason = f"it does not read the folder with --layout {layout}"
        if reason:
            check.refuse_unread(source, reason)
        run = RunDirectory(part)
        (part / PUBLISHED).mkdir(parents=True)
        for file, content in published.items():
            (part / PUBLISHED / file).write_bytes(content)
        # A folder's config.json may name BOS and EOS.
        tokenizer = _read_tokenizer(folder, part, model)
        tokenizer_path = str(local(run_path) / tokenizer.file_name) if tokenizer else None
        config = _run_config(source, name, tokenizer_path)
        origin = {"name": name, "model_type": source.architecture.model_type, "config": hf_config}
        origin |= {"context": source.context, "tensors": digest}
        fingerprint = tokenizer.fingerprint if tokenizer else None
        run.write_config(config, (), fingerprint, imported=origin)
        names = list(leaves_by_name(abstract_params(model)))
        write_params(run, 0, check.read_arrays(source, tensors), names)
        if reason:
            _print(f"Logits were not compared with transformers': {reason}")
        else:
            expected = make_config(source.architecture, model, source.context)
            _print(str(check.compare_logits(tensors, expected, source, "transformers' logits")))
            if tokenizer and (difference := find_other_ids(folder, tokenizer, model.vocab_size)):
                advice = f"ids of the run are those of {tokenizer.file_name} itself"
                _print(f"tokenizer: {difference}; {advice}")
    return RunDirectory(local(run_path))


def _print_factors(source: HfModel) -> None:
    """Print which of two lists of factors is used."""
    rope = {} if source.architecture.ropes == "by window" else read_rope(source.keys)
    if rope.get("rope_type") == "longrope" and rope["short_factor"] != rope["long_factor"]:
        original = rope.get("original_max_position_embeddings", source.longest)
        name = "long_factor" if source.context > original else "short_factor"
        _print(
            f"config.json: longrope has two lists of factors; {name} is used, for the trained "
            f"context of {source.context:,} tokens (--context-length selects the other)"
        )


def _reason_not_to_compare(source: HfModel) -> str:
    """Return why logits cannot be compared with transformers'; empty if they can."""
    if source.architecture.model_type in IMPORTED_TYPES:
        return "it has no such class; that of the model's folder is code, which is never run"
    if reason := check.reason_not_to_compare(source.model):
        return reason
    try:
        choose_architecture(source.model, source.context, source.architecture.model_type)
    except ValueError as error:
        return str(error)
    return ""


def _run_config(source: HfModel, name: str, tokenizer: str | None) -> ExperimentConfig:
    """Return the config of a run of no steps."""
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


def _read_tokenizer(folder: Path, part: Path, model: ModelConfig) -> Tokenizer | None:
    """Write the tokenizer of a folder to the new run, and return it; None if there is none."""
    path = find_tokenizer(folder)
    if path is None:
        _print("No tokenizer was imported; the run accepts token ids only")
        return None
    tokenizer, dropped = Tokenizer(path), []
    copy, content = part / tokenizer.file_name, tokenizer.model
    if tokenizer.vocab_size > model.vocab_size and tokenizer.file_name == "tokenizer.json":
        content, dropped = drop_unused(content, model.vocab_size)
    copy.write_bytes(content)
    tokenizer = Tokenizer(copy)
    if max(tokenizer.vocab_size - 1, tokenizer.bos_id, tokenizer.eos_id) >= model.vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids and the model "
            f"{model.vocab_size}; use the tokenizer of this model"
        )
    if dropped:
        _print(
            f"tokenizer: left out {', '.join(map(quoted, dropped[:5]))}"
            f"{f' and {len(dropped) - 5} more' if len(dropped) > 5 else ''}: the model has "
            f"{model.vocab_size:,} ids, and no embedding for them"
        )
    if changes := tokenizer.describe_changes():
        _print(f"tokenizer: {path.name} {changes}")
    if not puts_bos(path, tokenizer):
        name = quoted(tokenizer.name_of(tokenizer.bos_id))
        kind = ", its EOS," if tokenizer.bos_id == tokenizer.eos_id else ""
        _print(
            f"tokenizer: {name}{kind} (id {tokenizer.bos_id}) is put before every text, where the "
            "model's own tokenizer puts nothing; give ids instead of text to leave it out"
        )
    return tokenizer


def _check_tensors(model: ModelConfig, entries: list[Entry], tensors: Tensors) -> None:
    """Raise ValueError for a tensor that is missing, unknown, or has another shape or dtype."""
    leaves, folder = leaves_by_name(abstract_params(model)), tensors.folder
    unknown = set(tensors.known)
    for entry in entries:
        shapes = [leaves[name].shape[entry.is_stacked :] for name in entry.ours]
        # The functions only move numbers, so arrays of one byte give the shape.
        expected = entry.to_hf(*(np.broadcast_to(np.int8(0), shape) for shape in shapes)).shape
        names = entry.names(model.num_layers)
        for name in names:
            if name not in unknown:
                advice = "complete it, or write the model with transformers' save_pretrained"
                if entry.ours == ("output",):
                    advice = "if it is the embedding, tie_word_embeddings must be true"
                raise ValueError(
                    f"{folder} lacks the tensor {name}, which config.json requires; {advice}"
                )
            shape = tensors.known[name].shape
            if shape != expected:
                raise ValueError(
                    f"{folder}: {name} has shape {list(shape)}; config.json requires "
                    f"{list(expected)}"
                )
        unknown -= set(names)
        dtypes = sorted({tensors.known[name].dtype.name for name in names})
        if len(dtypes) > 1:
            raise ValueError(
                f"{folder}: {entry.hf_name.format(layer='*')} has dtypes {' and '.join(dtypes)} "
                "in different layers; convert it to one"
            )
    output, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if output in unknown and embedding in tensors.known:  # some files store tied weights twice
        if tensors.read(output).tobytes() != tensors.read(embedding).tobytes():
            raise ValueError(
                f"{folder}: {output} differs from the embedding, but config.json ties them; if it "
                "is the model's output, tie_word_embeddings must be false"
            )
        unknown.remove(output)
    if unknown:
        raise ValueError(
            f"{folder}: {quoted(min(unknown))} and {len(unknown) - 1} other tensors are not part "
            "of this model; check config.json"
        )


def _check_pairs(model: ModelConfig, entries: list[Entry], tensors: Tensors) -> None:
    """Raise ValueError if the features of keys look interleaved (Meta's order).

    The two features of a pair rotate into each other, so training gives their rows about the same
    norm, while norms of pairs with other frequencies differ. Untrained weights show nothing.
    """
    entry = next(candidate for candidate in entries if "blocks.attention.key" in candidate.ours)
    norms = []
    for name in entry.names(model.num_layers)[:4]:
        arrays = dict(zip(entry.ours, entry.from_hf(tensors.read(name)), strict=True))
        key_DKH = arrays["blocks.attention.key"]
        norms.append(np.linalg.norm(key_DKH.astype(np.float32), axis=0))
    if looks_interleaved(np.concatenate(norms)):
        raise ValueError(
            f"{tensors.folder}: queries and keys look interleaved (Meta's order), unlike this "
            "format; give --layout interleaved, or --layout half to import them as they are"
        )


def looks_interleaved(norms_KH: np.ndarray) -> bool:
    """Return True if neighboring features are more alike than those half a head apart.

    Args:
      norms_KH: norm of each feature's row, for each head.
    """
    if norms_KH.size // 2 < _MIN_PAIRS or not (norms_KH > 0).all():
        return False
    log_KH = np.log(norms_KH)
    first, second = np.split(log_KH, 2, axis=1)
    half, neighbors = np.abs(first - second), np.abs(log_KH[:, ::2] - log_KH[:, 1::2])
    return bool(half.mean() > _INTERLEAVED_RATIO * neighbors.mean())
