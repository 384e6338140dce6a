"""Import, export and evaluate models: python -m interop {export,import,lm_eval} ..."""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment.config import TRAINED, chosen_rotary
from experiment.run import find_run
from interop.folders import check_new, find_source
from interop.tensors import SHARD_BYTES
from utils.command_line import Parser, exit_with, expression, tokens
from utils.files import check_writable
from utils.paths import as_path

_EXPORT = """Export a run as a Hugging Face folder: python -m interop export RUN FOLDER

The folder has safetensors files, a config.json for transformers 5 and 4, tokenizer files, and a
README.md about the training. It appears under its name only after its rotation, windows and logits
were compared with the run's. They are those of transformers if it is installed, otherwise those of
the model as an import reads it.

docs/interop.md lists the classes of transformers and the features that none of them has.
"""

_IMPORT = """Import a Hugging Face folder or a GGUF file: python -m interop import FOLDER RUN

The run is at step 0: evaluate it, analyze its attention, or continue training with
`start_from=RUN`. Its rotary variant and trained context (max_position_embeddings) come from
config.json, and its parameters keep the dtype of the files (GGUF: float32). One tensor is read at a
time, and one stacked array is written at a time. The published tokenizer files, chat template and
generation config are kept in RUN/published. docs/interop.md lists the models that can be imported.
"""

_LM_EVAL = """Evaluate with lm-evaluation-harness: python -m interop lm_eval RUN --tasks NAME[,...]

Tasks are those of the harness, those in the folder of `--include_path`, and three that need no
network: local_text (bits per byte of held-out text), local_next_line (which of four lines comes
next) and local_passkey. In Python, `register()` adds runs to the harness as the model `ropewalk`.

Every text begins with BOS. With `--bos every`, so does each window of a long text. Results are
written to lm_eval/ in the run directory, or to --out.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status."""
    parser = Parser(prog="python -m interop", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    raw = argparse.RawDescriptionHelpFormatter
    for name, (text, description, add_arguments) in {
        "export": ("export a run as a Hugging Face folder", _EXPORT, _add_export),
        "import": ("import a Hugging Face folder as a run", _IMPORT, _add_import),
        "lm_eval": ("evaluate a run with lm-evaluation-harness", _LM_EVAL, _add_lm_eval),
    }.items():
        add_arguments(
            commands.add_parser(name, help=text, description=description, formatter_class=raw)
        )
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        options.check(options)
        # Import late: help and invalid arguments do not need JAX.
        from experiment.compiled import keep_programs
        from experiment.devices import check_platform

        keep_programs()
        check_platform()
        return importlib.import_module(f"interop.{options.module}").main(options)
    except (ValueError, OSError) as error:
        parser.refuse(error)


def _add_export(parser: Parser) -> None:
    add = parser.add_argument
    add("run_path", metavar="RUN", help="run directory")
    add("folder", metavar="FOLDER", type=Path, help="new folder")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    text = "dtype of the tensors (default: the checkpoint's)"
    add("--dtype", choices=("float32", "bfloat16", "float16"), help=text)
    add("--architecture", metavar="TYPE", help="model_type (default: the first that fits)")
    text = (
        "rope_type (default: the variant's own, or else longrope; `proportional` is written on "
        "request only)"
    )
    add("--rope-type", metavar="TYPE", help=text)
    size: dict[str, Any] = {"type": float, "default": SHARD_BYTES / 2**30, "metavar": "GIB"}
    add("--shard-gib", **size, help="size of a file (default: %(default)g)")
    parser.set_defaults(module="export", check=_check_export)


def _check_export(options: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are wrong."""
    find_run(options.run_path).find_step(options.step)
    check_new(options.folder)
    if not options.shard_gib > 0:
        raise ValueError(f"--shard-gib must be above 0, got {options.shard_gib:g}")


def _add_import(parser: Parser) -> None:
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
    add("--no-compare", action="store_true", help=text)
    parser.set_defaults(module="importing", check=_check_import)


def _check_import(options: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are wrong."""
    find_source(options.folder)
    check_new(options.run_path)


def _add_lm_eval(parser: Parser) -> None:
    add = parser.add_argument
    add("run_path", metavar="RUN", help="run directory")
    add("--tasks", required=True, metavar="NAME[,NAME...]", help="tasks, groups or .yaml files")
    add("--include_path", metavar="DIR", help="folder with your own tasks")
    add("--limit", type=float, metavar="N", help="documents per task; below 1, their share")
    add("--num_fewshot", type=int, metavar="N", help="examples per prompt (default: the task's)")
    add("--max_length", type=tokens, metavar="TOKENS", help="default: the trained context")
    text = "another rotary variant (see evaluate.py)"
    add("--rotary", default=TRAINED, type=expression, metavar="EXPR", help=text)
    add("--bos", choices=("first", "every"), default="first", help="windows that begin with BOS")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    add("--metadata", type=json.loads, metavar="JSON", help="arguments of the tasks")
    add("--out", type=Path, metavar="FILE", help="default: RUN/lm_eval/TASKS,step=N.json")
    parser.set_defaults(module="lm_eval", check=_check_lm_eval)


def _check_lm_eval(options: argparse.Namespace) -> None:
    """Raise ValueError for arguments that are wrong."""
    run = find_run(options.run_path)
    chosen_rotary(options.rotary, run.config_at(run.find_step(options.step)))
    if options.include_path and not Path(options.include_path).is_dir():
        raise ValueError(f"--include_path {options.include_path}: the folder does not exist")
    for name, value in (("limit", options.limit), ("max_length", options.max_length)):
        if value is not None and value <= 0:
            raise ValueError(f"--{name} must be above 0, got {value:g}")
    out = as_path(options.out).parent if options.out else run.path
    check_writable(out, "give another --out FILE")


if __name__ == "__main__":
    exit_with(main)
