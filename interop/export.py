"""Writes a run as a Hugging Face folder: python -m interop export RUN FOLDER

The folder holds safetensors, a config.json for transformers 5 and 4, the tokenizer's files, and a
README.md that says what was trained and how. Before it has its name, its logits are compared with
the run's (transformers' own where it is installed, else its functions restated in numpy), at a
short row, at the trained context and at four times that.

Which class of transformers a model becomes, and what no class has: docs/interop.md.
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory, find_run
from experiment.streamed import StoredParams, put
from interop import card, check
from interop.architectures import Architecture, Facts, choose, config_json
from interop.check import Compared, Subject
from interop.tensors import DTYPES, SHARD_BYTES, Spec, Tensors, digest, write
from interop.weights import Entry
from model.transformer import Params
from utils.messages import one_line
from utils.paths import local

_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of the command line."""
    parser.add_argument("run_path", metavar="RUN", help="a run directory")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="what is written; new")
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    parser.add_argument(
        "--dtype", choices=_DTYPES, help="of the tensors (default: as the checkpoint has them)"
    )
    parser.add_argument(
        "--architecture", metavar="TYPE", help="model_type (default: the first that fits)"
    )
    parser.add_argument(
        "--rope-type",
        metavar="TYPE",
        help="rope_type (default: the variant's own, else longrope; `proportional` only here)",
    )
    parser.add_argument(
        "--shard-gib", type=float, default=SHARD_BYTES / 2**30, metavar="GIB", help="of a file"
    )


def main(arguments: argparse.Namespace) -> int:
    """The command."""
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
    for row in comparisons:
        print(card.compared_line(row), file=sys.stderr)
    if not comparisons:
        print(card.IDENTICAL, file=sys.stderr)
    print(f"{arguments.folder} is a Hugging Face folder; the logits are the run's", file=sys.stderr)
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an export.

    Attributes:
      dtype: of the tensors; None: as the checkpoint has them.
      architecture: model_type; None: what an imported run came as, or else the first that fits.
      rope_type: the only one; None: the variant's own, else longrope.
      shard_bytes: about as many in a file.
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
) -> list[Compared]:
    """Writes a run as a Hugging Face folder, which has its name only once its logits are right.

    Args:
      run_path: a run directory.
      folder: what is written; must not exist.
      step: of the checkpoint; None: the newest.
      options: see there.

    Returns:
      The comparisons of logits; none for an imported run whose tensors are byte for byte those
      that came in: then config.json is compared with the run and with the one that was imported.

    Raises:
      ValueError: if the folder is there already, no class of transformers has the model, or the
        folder's logits are others than the run's.
    """
    folder, options = local(folder), options or Options()
    if folder.exists():
        raise ValueError(f"{folder} is there already; delete it, or name another folder")
    run = find_run(run_path)
    step = run.find_step(step)
    config = run.config_at(step)
    wanted = options.architecture or _came_as(run, config)
    architecture = choose(config.model, wanted)
    tokenizer = run.tokenizer if run.tokenizer_path.exists() else None
    facts = Facts(
        context=config.data.context_length,
        bos_id=tokenizer and tokenizer.bos_id,
        eos_id=tokenizer and tokenizer.eos_id,
        rope_type=options.rope_type,
    )
    config_json(architecture, config.model, facts)  # refused now, or not at all
    stored = StoredParams(run, step)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        writer = _Writer(run, config, architecture, facts, stored)
        comparisons = writer.write(part, options, tokenizer)
        os.rename(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return comparisons


def _came_as(run: RunDirectory, config: ExperimentConfig) -> str | None:
    """The class that an imported run was of, if it still fits."""
    came = run.record.get("imported", {}).get("model_type")
    try:
        return choose(config.model, came).model_type if came else None
    except ValueError:
        return None


class _Writer:
    """One export, into a folder that nobody looks for."""

    def __init__(
        self,
        run: RunDirectory,
        config: ExperimentConfig,
        architecture: Architecture,
        facts: Facts,
        stored: StoredParams,
    ):
        self.run, self.config, self.architecture = run, config, architecture
        self.facts, self.stored = facts, stored
        self.entries = architecture.entries(config.model)
        self.params: Params | None = {} if check.fits_in_memory(config.model) else None

    def write(self, folder: Path, options: Options, tokenizer: Tokenizer | None) -> list[Compared]:
        """All files; what the comparison of logits showed."""
        dtype = DTYPES[_DTYPES[options.dtype]] if options.dtype else None
        specs = [
            Spec(name, _size(self.stored, entry) * self._dtype(entry, dtype).itemsize)
            for entry in self.entries
            for name in _names(entry, self.config.model.num_layers)
        ]
        write(folder, specs, self._tensors(dtype), options.shard_bytes)
        kind = self._dtype(self.entries[0], dtype).name
        facts = dataclasses.replace(self.facts, dtype=kind)
        hf_config = config_json(self.architecture, self.config.model, facts)
        text = json.dumps(hf_config, indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")
        tokenizer_text = _write_tokenizer(tokenizer, folder)
        hf_config = json.loads(text)
        tensors = digest(Tensors(folder), [spec.name for spec in specs])
        comparisons = self._compare(folder, hf_config, tensors)
        record = {
            "tensors": tensors,
            "config": hf_config,
            "rows": [row._asdict() for row in comparisons],
        }
        (folder / check.RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        about = card.Described(self.run, self.stored.step, self.config, hf_config, tokenizer_text)
        (folder / "README.md").write_text(card.readme(about, comparisons), encoding="utf-8")
        return comparisons

    def _compare(self, folder: Path, hf_config: dict[str, Any], tensors: str) -> list[Compared]:
        """Return the comparisons that were needed; refuse a folder that is not the run."""
        model, imported = self.config.model, self.run.record.get("imported", {})
        if tensors == imported.get("tensors"):
            check.check_config(hf_config, model, self.facts.context)
            try:
                check.check_config(imported["config"], model, imported["context"])
            except ValueError as error:
                raise ValueError(
                    f"{self.run.path}: the tensors are those that were imported, and the model is "
                    f"not: the imported {error}; nothing was written"
                ) from error
            return []
        comparisons = check.compare(
            Subject(
                folder=folder,
                hf_config=hf_config,
                config=model,
                context=self.facts.context,
                entries=self.entries,
                params=self.params,
            )
        )
        check.refuse_different(comparisons, "the folder's logits")
        return comparisons

    def _dtype(self, entry: Entry, wanted: np.dtype | None) -> np.dtype:
        return wanted or np.dtype(self.stored.known[entry.ours[0]].dtype)

    def _tensors(self, wanted: np.dtype | None) -> Iterator[tuple[str, np.ndarray]]:
        """Every tensor by its name, in the order of the table: of ours one leaf at a time."""
        for entry in self.entries:
            dtype = self._dtype(entry, wanted)
            leaves = [self.stored.read(name).astype(dtype, copy=False) for name in entry.ours]
            if self.params is not None:
                for name, leaf in zip(entry.ours, leaves, strict=True):
                    # Rounded alike on both sides: what is compared is how they are read.
                    put(self.params, name, np.asarray(leaf, np.float32))
            if not entry.is_stacked:
                yield entry.theirs, entry.to_hf(*leaves)
                continue
            for layer in range(len(leaves[0])):
                yield entry.theirs.format(layer=layer), entry.to_hf(*(x[layer] for x in leaves))


def _names(entry: Entry, num_layers: int) -> list[str]:
    if not entry.is_stacked:
        return [entry.theirs]
    return [entry.theirs.format(layer=layer) for layer in range(num_layers)]


def _size(stored: StoredParams, entry: Entry) -> int:
    """Numbers in one tensor."""
    shapes = [stored.known[name].shape[entry.is_stacked :] for name in entry.ours]
    return sum(int(np.prod(shape)) for shape in shapes)


def _write_tokenizer(tokenizer: Tokenizer | None, folder: Path) -> str:
    """The tokenizer's files, if there can be some; else why not, in words."""
    # Late: what reads tokenizers of other kinds is an extra.
    from interop import tokenizer_files

    if tokenizer is None:
        return "The run was trained on ids without a text: there is no tokenizer."
    try:
        tokenizer_files.write_tokenizer(tokenizer, folder)
    except ValueError as error:
        return f"Without tokenizer files: {one_line(str(error), 200)}."
    return ""
