"""Import and export models: ropewalk {import,export} ..."""

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.experiment.run import find_run
from ropewalk.interop.folders import check_new, find_source
from ropewalk.interop.tensors import SHARD_BYTES
from ropewalk.utils.command_line import Parser, exit_with, tokens
from ropewalk.utils.messages import quoted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status."""
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, add_arguments in (  # the docstring of a function is the text of `--help`
        ("export", "export a run as a Hugging Face folder", _add_export),
        ("import", "import a Hugging Face folder as a run", _add_import),
    ):
        description = inspect.getdoc(add_arguments)
        add_arguments(commands.add_parser(name, help=text, description=description))
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    with parser.refusing(ValueError, OSError):
        options.check(options)
        # Import late: help and invalid arguments do not need JAX.
        from ropewalk.experiment.compiled import keep_programs
        from ropewalk.experiment.devices import check_platform

        keep_programs()
        check_platform()
        values = vars(options)
        _, module, _ = (values.pop(name) for name in ("command", "module", "check"))
        return importlib.import_module(f"ropewalk.interop.{module}").main(**values)


def _add_export(parser: Parser) -> None:
    """Export a run as a Hugging Face folder: ropewalk export RUN FOLDER

    The folder has safetensors files, a config.json for transformers 5 and 4, tokenizer files, and a
    README.md about the training. It appears under its name only after rotation, windows and logits
    that transformers computes from it were compared with the run's. Without transformers, an import
    must read each number where the export has put it.

    docs/interop.md lists the classes of transformers and the features that none of them has.
    """
    add = parser.add_argument
    add("run_path", metavar="RUN", help="run directory")
    add("folder", metavar="FOLDER", type=Path, help="new folder")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    text = "dtype of the tensors (default: the checkpoint's)"
    add("--dtype", choices=("float32", "bfloat16", "float16"), help=text)
    add("--architecture", metavar="TYPE", help="model_type (default: the first that fits)")
    text = "name on a model hub, for the model card and the command that uploads the folder"
    add("--hub", metavar="USER/MODEL", help=text)
    size: dict[str, Any] = {"type": float, "default": SHARD_BYTES / 2**30, "metavar": "GIB"}
    add("--shard-gib", **size, help="size of a file (default: %(default)g)")
    parser.set_defaults(module="export", check=_check_export)


def _check_export(options: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are wrong."""
    find_run(options.run_path).find_step(options.step)
    check_new(options.folder)
    if options.hub and not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", options.hub, re.ASCII):
        raise ValueError(f"--hub must be USER/MODEL, got {quoted(options.hub)}")
    if not options.shard_gib > 0:
        raise ValueError(f"--shard-gib must be above 0, got {options.shard_gib:g}")


def _add_import(parser: Parser) -> None:
    """Import a Hugging Face folder or a GGUF file: ropewalk import FOLDER RUN

    The run is at step 0: evaluate it, analyze its attention, or continue training with
    `start_from=RUN`. Its rotary variant and trained context (max_position_embeddings) come from
    config.json, and its parameters keep the dtype of the files. One tensor is read at a time, and
    one stacked array is written at a time. The published tokenizer files, chat template and
    generation config are kept in RUN/published. transformers first converts a GGUF file to such a
    folder, in float32. docs/interop.md lists the models that can be imported.
    """
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="config.json, *.safetensors; or a *.gguf file")
    add("run_path", metavar="RUN", help="new run directory")
    text = (
        "trained context (default: max_position_embeddings); for Phi-3 it selects one of two "
        "lists of frequencies"
    )
    add("--context-length", type=tokens, metavar="TOKENS", help=text)
    text = "features of queries and keys that form a pair (default: the format's rule)"
    add("--layout", choices=("auto", "half", "interleaved"), default="auto", help=text)
    text = "do not compare logits with transformers; needs less memory and time"
    add("--no-compare", action="store_false", dest="compare", help=text)
    parser.set_defaults(module="importing", check=_check_import)


def _check_import(options: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are wrong."""
    find_source(options.folder)
    check_new(options.run_path)


if __name__ == "__main__":
    exit_with(main)
