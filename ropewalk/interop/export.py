"""Exports of runs as Hugging Face folders; `interop.__main__` has the command."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment.checkpoint import StoredParams
from ropewalk.experiment.run import RunDirectory, find_run
from ropewalk.interop import card, check
from ropewalk.interop.architectures import make_config
from ropewalk.interop.choose import check_config, choose_architecture
from ropewalk.interop.folders import new_folder
from ropewalk.interop.tensors import SHARD_BYTES, Tensors, digest_tensors, write_tensors
from ropewalk.interop.tokenizer_files import read_published, write_published, write_tokenizer
from ropewalk.interop.weights import Entry
from ropewalk.model.config import ModelConfig
from ropewalk.utils.messages import counted, one_line, print_note


def main(*, shard_gib: float, **options: Any) -> int:
    """Run the command."""
    note = export(**options, shard_bytes=max(1, int(shard_gib * 2**30)))
    print(f"{note}\nexported: {options['folder']}", file=sys.stderr)
    if hub := options["hub"]:
        print(f"Next: {shlex.join(['hf', 'upload', hub, str(options['folder'])])}", file=sys.stderr)
    return 0


def export(
    run_path: str | Path,
    folder: str | Path,
    *,
    step: int | None = None,
    dtype: str | None = None,
    architecture: str | None = None,
    hub: str | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> str:
    """Export a run as a Hugging Face folder, which appears only if it was proved to be the run.

    Args:
      run_path: run directory.
      folder: new folder.
      step: step of the checkpoint; None: the newest.
      dtype: dtype of the tensors; None: the checkpoint's.
      architecture: model_type; None: that of the imported model, or else the first that fits.
      hub: name on a model hub, USER/MODEL, for the model card; None: the run's.
      shard_bytes: size of a file.

    Returns:
      What was compared, a text.

    Raises:
      ValueError: if the folder exists, no class of transformers has the model, or the logits
        differ.
    """
    with new_folder(folder) as part:
        run = find_run(run_path)
        step = run.find_step(step)
        config, stored = run.config_at(step), StoredParams(run, step)
        model, context = config.model, config.data.context_length
        imported_type = _imported_type(run, model, context)
        chosen = choose_architecture(model, context, architecture or imported_type)
        tokenizer = run.tokenizer if run.tokenizer_path.exists() else None
        hf_config = make_config(chosen, model, context, tokenizer)
        entries = chosen.entries(model)
        _check_parameters(entries, stored, chosen.class_name)
        actual = _write_tensors(part, entries, stored, dtype, shard_bytes)
        hf_config |= {"dtype": actual, "torch_dtype": actual}
        _write_json(part / "config.json", hf_config)
        tokenizer_note = _write_tokenizer(run, tokenizer, part, context)
        tensors, source = Tensors(part), check_config(hf_config, model, context)
        check.check_parameters(source, tensors, stored.read, chosen.class_name)
        digest = digest_tensors(tensors, tensors.known)
        row, note = None, card.IDENTICAL
        if digest == run.record.get("imported", {}).get("tensors"):
            _check_imported_config(run, model)
        elif reason := check.reason_not_to_compare(model):
            note = card.READ_BACK.format(reason=reason)
        else:
            comparison = check.compare_logits(tensors, hf_config, source, "the folder's logits")
            row, note = comparison._asdict(), str(comparison)
        record = {"tensors": digest, "config": hf_config, "files": check.digest_files(part)}
        _write_json(part / check.RECORD, record | {"row": row})
        notes = {"tokenizer_note": tokenizer_note, "comparison": note, "hub": hub or ""}
        readme = card.make_readme(run, step, config, chosen.model_type, **notes)
        (part / "README.md").write_text(readme, encoding="utf-8")
    return note


def _imported_type(run: RunDirectory, model: ModelConfig, context: int) -> str | None:
    """Return the model_type that a run was imported from, if the model still fits it."""
    model_type = run.record.get("imported", {}).get("model_type")
    try:
        if model_type:
            choose_architecture(model, context, model_type)
        return model_type
    except ValueError:
        return None


def _check_parameters(entries: list[Entry], stored: StoredParams, class_name: str) -> None:
    """Raise ValueError if the checkpoint has a parameter that no tensor of the class holds."""
    parameters = {name for entry in entries for name in entry.ours}
    if extra := stored.known.keys() - parameters:
        raise ValueError(
            f"{class_name} lacks the parameter {min(extra)}; train without it, or add it to "
            "interop/weights.py"
        )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_tensors(
    folder: Path, entries: list[Entry], stored: StoredParams, dtype: str | None, shard_bytes: int
) -> str:
    """Write the safetensors files; return the name of their dtype."""
    num_layers = stored.run.config_at(stored.step).model.num_layers
    wanted = dtype and np.dtype(dtype)
    counts = []  # of weights that become 0

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        for entry in entries:
            # A tensor of several arrays has the dtype of the first.
            actual = wanted or stored.known[entry.ours[0]].dtype
            arrays = [stored.read(x) for x in entry.ours]
            leaves = [_convert(x, y, actual) for x, y in zip(entry.ours, arrays, strict=True)]
            before, after = (sum(map(np.count_nonzero, x)) for x in (arrays, leaves))
            counts.append(int(before - after))
            layers = zip(*leaves, strict=True) if entry.is_stacked else [leaves]
            for name, arrays in zip(entry.names(num_layers), layers, strict=True):
                yield name, entry.to_hf(*arrays)

    write_tensors(folder, tensors(), shard_bytes)
    if sum(counts):
        what = f"{counted(sum(counts), 'weights')} so small that {dtype} makes them 0"
        print_note(folder, f"--dtype {dtype}: {what}; give --dtype bfloat16 or float32")
    return np.dtype(wanted or stored.known[entries[0].ours[0]].dtype).name


def _convert(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an array in another dtype; raise ValueError for values that are not finite there."""
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite values; export an earlier --step")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype, copy=False)
    beyond = ~np.isfinite(converted)
    if beyond.any():
        raise ValueError(
            f"{name} has values up to {np.abs(array[beyond]).max():.6g}, which {np.dtype(dtype)} "
            "cannot hold; give --dtype bfloat16 or float32"
        )
    return converted


def _check_imported_config(run: RunDirectory, model: ModelConfig) -> None:
    """Raise ValueError if the model of an imported run is not that of the imported config.json."""
    imported = run.record["imported"]
    try:
        check_config(imported["config"], model, imported["context"], "the imported config.json")
    except ValueError as error:
        raise ValueError(
            f"{run.path}: the tensors are those that were imported, but the model is another one: "
            f"{error}; nothing was written"
        ) from error


def _write_tokenizer(
    run: RunDirectory, tokenizer: Tokenizer | None, folder: Path, context: int
) -> str:
    """Write the tokenizer's files. If that is not possible, return the reason as a sentence.

    Those of an imported run are written as they were published, but for the context's length.
    """
    if published := run.published_path:
        is_same = run.origin is not None and context == run.origin["context"]
        write_published(read_published(published), folder, None if is_same else context)
        return ""
    if tokenizer is None:
        return "This folder has no tokenizer: the run was trained on token ids."
    try:
        write_tokenizer(tokenizer, folder)
    except ValueError as error:
        return f"This folder has no tokenizer: {one_line(str(error), 200)}."
    return ""
