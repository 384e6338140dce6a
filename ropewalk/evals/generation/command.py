"""Generate text with a trained model.

usage: generate.py RUN [--prompt TEXT ...] [options]

RUN is a run directory of train.py, or that of one member of a sweep. Without --prompt and --prompts
the prompt is read from standard input.

options:
  -h, --help            show this help
  --prompt TEXT         a prompt; may be repeated; "" begins a document
  --prompts FILE        one prompt per line; empty lines are ignored
  --max-new-tokens N    maximum number of new tokens (default: 64)
  --temperature X       sample from logits divided by X (default: 0, take the most likely token)
  --top-k N             sample among the N most likely tokens
  --top-p P             of those, sample among the fewest whose probabilities sum to at least P
  --seed N              seed of sampling (default: 0)
  --stop TEXT           end before this text; may be repeated; a newline is $'\\n' in bash
  --rotary EXPR         use another rotary variant than the trained one, as in evaluate.py
  --own FILE.py         a file of your code that may run; files that EXPR names may run anyway
  --step N              checkpoint (default: the newest)
  --json                print one JSON object, with ids, and nothing else

examples:
  ropewalk generate runs/demo/base=10,num_heads=1 --prompt "import numpy"
  ropewalk generate RUN --prompt "def " --temperature 0.8 --top-p 0.95 --stop $'\\n\\n'
  ropewalk generate RUN --prompts FILE --rotary dynamic_yarn --json

The text of a single prompt is printed as it is generated. Several are printed at the end, each
prompt after "> " before its text, which does not depend on the other prompts.

With a dynamic variant (dynamic_...), texts that may pass the trained length are recomputed for each
token, which is slower; so are all texts of models with latent attention (MLA).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropewalk.evals.generation.options import Options
from ropewalk.experiment.config import chosen_rotary
from ropewalk.experiment.run import find_run
from ropewalk.utils.command_line import Parser, exit_with, expression, tokens
from ropewalk.utils.errors import UnreachableError
from ropewalk.utils.limits import MAX_JSON
from ropewalk.utils.messages import check_unicode, print_note, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    with parser.refusing(ValueError, UnreachableError):
        values: dict[str, Any] = {
            field.name: getattr(args, field.name) for field in fields(Options)
        }
        options = Options(**values)
        run = find_run(args.run)
        config = run.config_at(run.find_step(args.step))
        if args.rotary is not None:
            chosen_rotary(args.rotary, config)
        _generate(args, _prompts(args), options)
    return 0


def _generate(args: argparse.Namespace, prompts: list[str], options: Options) -> None:
    # Import late: this takes seconds, and help and invalid arguments do not need it.
    from ropewalk.evals.generation import generate
    from ropewalk.experiment import load
    from ropewalk.experiment.compiled import keep_programs
    from ropewalk.experiment.devices import check_platform

    keep_programs()
    check_platform()
    run = load(args.run, args.step)
    if args.rotary is not None:
        run = run.with_rotary(args.rotary)
    trained = run.config.data.context_length
    longest = max(run.as_tokens(prompt).shape[1] for prompt in prompts) + options.max_new_tokens
    if longest > trained:
        print_note(args.run, f"rows of up to {longest} tokens; the model was trained at {trained}")
    is_streamed = len(prompts) == 1 and not args.json
    generated = generate(run, prompts, stream=_print if is_streamed else None, **vars(options))
    if args.json:
        results = [{"prompt": p, **vars(text)} for p, text in zip(prompts, generated, strict=True)]
        header: dict[str, Any] = {"run": args.run, "step": run.step, "rotary": run.rotary_label}
        print(json.dumps(header | {"results": results}))
    for prompt, text in () if is_streamed or args.json else zip(prompts, generated, strict=True):
        print(printable(f"> {prompt}\n{text.text}"))


def _print(index: int, text: str) -> None:
    """Print new text of the only prompt; the end of it is an empty string."""
    print(printable(text), end="" if text else "\n", flush=True)


def _prompts(args: argparse.Namespace) -> list[str]:
    """Return the prompts of the command line, or of standard input.

    Raises:
      ValueError: if there is no prompt, or a file cannot be read.
    """
    for option, texts in (("--prompt", args.prompt), ("--stop", args.stop)):
        for text in texts:
            check_unicode(text, option)
    prompts = list(args.prompt)
    if args.prompts is not None:
        name = f"--prompts {args.prompts}"
        lines = [line for line in _read(name, args.prompts).split("\n") if line.strip()]
        if not lines:
            raise ValueError(f"{name}: has no prompt; write one per line")
        prompts += lines
    if prompts:
        return prompts
    if sys.stdin.isatty():
        raise ValueError('no prompt: give --prompt TEXT ("" begins a document)')
    return [_read("standard input").removesuffix("\n")]


def _read(name: str, path: str | None = None) -> str:
    """Return the text of a file or of standard input, either of which may have no end."""
    try:
        with Path(path).open(encoding="utf-8-sig") if path else nullcontext(sys.stdin) as file:
            text = file.read(MAX_JSON + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ValueError(f"{name}: cannot be read ({reason})") from None
    if len(text) > MAX_JSON:
        raise ValueError(f"{name}: more than {MAX_JSON:,} characters")
    check_unicode(text, name)
    return text.removeprefix("\ufeff")


class _Parser(Parser):
    """A parser whose help is the docstring of this file."""

    def format_help(self) -> str:
        """Return the text of `--help`."""
        return f"{__doc__}\n"


def _parser() -> Parser:
    parser = _Parser()
    defaults = Options()
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--prompts")
    parser.add_argument("--max-new-tokens", type=tokens, default=defaults.max_new_tokens)
    parser.add_argument("--temperature", type=float, default=defaults.temperature)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--rotary", type=expression)
    parser.add_argument("--step", type=int)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    exit_with(main)
