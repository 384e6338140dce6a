"""Export a run as a Hugging Face folder: python -m interop export RUN FOLDER

The folder has safetensors files, a config.json for transformers 5 and 4, tokenizer files, and a
README.md about the training. It appears under its name only after its logits were compared with
the run's, at a short row, at the trained context and at four times that. Logits of the folder are
computed by transformers if it is installed, otherwise by its functions restated in numpy.

docs/interop.md lists the classes of transformers and the features that none of them has.
"""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory, find_run
from experiment.streamed import StoredParams
from interop import card, check
from interop.architectures import Architecture, choose_architecture, make_config
from interop.check import Comparison, FolderModel
from interop.folders import new_folder
from interop.tensors import DTYPES, SHARD_BYTES, Tensors, digest_tensors, write_tensors
from utils.messages import one_line

_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to a parser."""
    parser.add_argument("run_path", metavar="RUN", help="run directory")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="new folder")
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    parser.add_argument(
        "--dtype", choices=_DTYPES, help="dtype of the tensors (default: the checkpoint's)"
    )
    parser.add_argument(
        "--architecture", metavar="TYPE", help="model_type (default: the first that fits)"
    )
    parser.add_argument(
        "--rope-type",
        metavar="TYPE",
        help="rope_type (default: the variant's own, or else longrope; `proportional` is written "
        "on request only)",
    )
    parser.add_argument(
        "--shard-gib",
        type=float,
        default=SHARD_BYTES / 2**30,
        metavar="GIB",
        help="size of a file (default: %(default)g)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    comparisons = export(
        arguments.run_path,
        arguments.folder,
        step=arguments.step,
        options=Options(
            dtype=arguments.dtype,
            architecture=arguments.architecture,
            rope_type=arguments.rope_type,
            shard_bytes=max(1, int(arguments.shard_gib * 2**30)),
        ),
    )
    lines = [card.format_comparison(row) for row in comparisons] or [card.IDENTICAL]
    print("\n".join([*lines, f"exported: {arguments.folder}"]), file=sys.stderr)
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an export.

    Attributes:
      dtype: dtype of the tensors; None: the checkpoint's.
      architecture: model_type; None: that of the imported model, or else the first that fits.
      rope_type: the only rope_type allowed; None: the variant's own, or else longrope.
      shard_bytes: size of a file.
    """

    dtype: str | None = None
    architecture: str | None = None
    rope_type: str | None = None
    shard_bytes: int = SHARD_BYTES


def export(
    run_path: str | Path,
    folder: str | Path,
    *,
    step: int | None = None,
    options: Options | None = None,
) -> list[Comparison]:
    """Export a run as a Hugging Face folder, which appears only if its logits are the run's.

    Args:
      run_path: run directory.
      folder: new folder.
      step: step of the checkpoint; None: the newest.
      options: see `Options`.

    Returns:
      The comparisons of logits. None are made for an imported run whose tensors are byte for byte
      those that were imported: config.json is compared with the run and with the imported one.

    Raises:
      ValueError: if the folder exists, no class of transformers has the model, or the logits
        differ.
    """
    options = options or Options()
    with new_folder(folder) as part:
        run = find_run(run_path)
        step = run.find_step(step)
        config = run.config_at(step)
        architecture = choose_architecture(
            config.model, options.architecture or _imported_type(run, config)
        )
        tokenizer = run.tokenizer if run.tokenizer_path.exists() else None
        make_hf_config = functools.partial(
            make_config,
            architecture,
            config.model,
            config.data.context_length,
            bos_id=tokenizer and tokenizer.bos_id,
            eos_id=tokenizer and tokenizer.eos_id,
            rope_type=options.rope_type,
        )
        make_hf_config()  # fail before anything is written
        part.mkdir(parents=True)
        stored = StoredParams(run, step)
        params, dtype = _write_tensors(part, architecture, config, stored, options)
        hf_config = make_hf_config(dtype=dtype)
        _write_json(part / "config.json", hf_config)
        tokenizer_note = _write_tokenizer(tokenizer, part)
        model = FolderModel(
            tensors=Tensors(part),
            hf_config=hf_config,
            config=config.model,
            context=config.data.context_length,
            entries=architecture.entries(config.model),
            params=params,
        )
        digest = digest_tensors(model.tensors, model.tensors.known)
        comparisons = _compare(run, model, digest)
        rows = [row._asdict() for row in comparisons]
        _write_json(part / check.RECORD, {"tensors": digest, "config": hf_config, "rows": rows})
        readme = card.make_readme(
            run, stored.step, config, architecture.model_type, tokenizer_note, comparisons
        )
        (part / "README.md").write_text(readme, encoding="utf-8")
    return comparisons


def _imported_type(run: RunDirectory, config: ExperimentConfig) -> str | None:
    """Return the model_type that a run was imported from, if the model still fits it."""
    model_type = run.record.get("imported", {}).get("model_type")
    try:
        return choose_architecture(config.model, model_type).model_type if model_type else None
    except ValueError:
        return None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_tensors(
    folder: Path,
    architecture: Architecture,
    config: ExperimentConfig,
    stored: StoredParams,
    options: Options,
) -> tuple[dict[str, np.ndarray] | None, str]:
    """Write the safetensors files.

    Returns:
      The run's float32 parameters by name, rounded to the files' dtype, if they fit in memory; and
      the name of that dtype.
    """
    entries = architecture.entries(config.model)
    dtypes = {name: np.dtype(leaf.dtype) for name, leaf in stored.known.items()}
    if options.dtype:
        dtypes = dict.fromkeys(dtypes, DTYPES[_DTYPES[options.dtype]])
    params = {} if check.fits_in_memory(config.model) else None

    def tensors() -> Iterator[tuple[str, np.ndarray]]:
        for entry in entries:
            # Tensors of several arrays have the dtype of the first.
            dtype = dtypes[entry.ours[0]]
            leaves = [stored.read(name).astype(dtype, copy=False) for name in entry.ours]
            if params is not None:
                params.update(
                    (name, np.asarray(leaf, np.float32))
                    for name, leaf in zip(entry.ours, leaves, strict=True)
                )
            layers = zip(*leaves, strict=True) if entry.is_stacked else [leaves]
            names = entry.names(config.model.num_layers)
            yield from ((name, entry.to_hf(*x)) for name, x in zip(names, layers, strict=True))

    sizes = {}
    for entry in entries:
        count = sum(
            np.prod(stored.known[x].shape[entry.is_stacked :], dtype=int) for x in entry.ours
        )
        names = entry.names(config.model.num_layers)
        sizes |= dict.fromkeys(names, int(count) * dtypes[entry.ours[0]].itemsize)
    write_tensors(folder, sizes, tensors(), options.shard_bytes)
    return params, dtypes[entries[0].ours[0]].name


def _compare(run: RunDirectory, model: FolderModel, digest: str) -> list[Comparison]:
    """Return the comparisons that are needed; raise ValueError if the folder is not the run."""
    imported = run.record.get("imported", {})
    if digest != imported.get("tensors"):
        comparisons = check.compare_logits(model)
        check.check_comparisons(comparisons, "the folder's logits")
        return comparisons
    check.check_config(model.hf_config, model.config, model.context)
    try:
        names = ("the imported config.json", "the run")
        check.check_config(imported["config"], model.config, imported["context"], names)
    except ValueError as error:
        raise ValueError(
            f"{run.path}: the tensors are those that were imported, but the model is another one: "
            f"{error}; nothing was written"
        ) from error
    return []


def _write_tokenizer(tokenizer: Tokenizer | None, folder: Path) -> str:
    """Write the tokenizer's files. If that is not possible, return the reason as a sentence."""
    from interop import tokenizer_files  # here, because it needs an extra

    if tokenizer is None:
        return "This folder has no tokenizer: the run was trained on token ids."
    try:
        tokenizer_files.write_tokenizer(tokenizer, folder)
    except ValueError as error:
        return f"This folder has no tokenizer: {one_line(str(error), 200)}."
    return ""
