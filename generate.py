"""Writes on from prompts with a trained model.

usage: generate.py RUN [--prompt TEXT ...] [options]

RUN is a run directory as train.py leaves it (of a sweep: a member's). Without --prompt and
--prompts the prompt is read from standard input.

options:
  -h, --help            show this
  --prompt TEXT         what to go on from; may be given again; "" begins a document
  --prompts FILE        one prompt a line; empty lines are left out
  --max-new-tokens N    where a text ends at the latest (default: 64)
  --temperature X       draw tokens, from logits divided by X (default: 0, take the likeliest)
  --top-k N             draw among the N likeliest
  --top-p P             of those, among the fewest likeliest whose probabilities reach P
  --seed N              of what is drawn (default: 0)
  --stop TEXT           end before this text; may be given again; a newline is $'\\n' in bash
  --rotary EXPR         write with another rotary variant than the trained one, as in evaluate.py
  --own FILE.py         a file of your code that may be executed; one that EXPR names may anyway
  --step N              checkpoint (default: the newest)
  --dtype TYPE          float32 or bfloat16, of matrix products (default: float32, as evaluate.py)
  --json                print one JSON object, with ids, and nothing else

examples:
  python generate.py runs/demo/base=10,num_heads=1 --prompt "import numpy"
  python generate.py RUN --prompt "def " --temperature 0.8 --top-p 0.95 --stop $'\\n\\n'
  python generate.py RUN --prompts FILE --rotary dynamic_yarn --json

Of a variant whose frequencies change with a row's length (dynamic_...) a cache holds up to the
trained length, unless just the last layer has it: from there on rows are read anew for each token.

Text is printed as it comes. Of several prompts each is printed, after "> ", before its text. Texts
do not hang on each other: a prompt is answered alike alone and among others.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiment.run import find_run
from generation.options import Options
from settings.commands import Parser, expression
from settings.places import UnreachableError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        options = Options(
            max_new_tokens=args.max_new_tokens,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=args.seed,
            stop=tuple(args.stop),
            dtype=args.dtype,
        )
        find_run(args.run)
        prompts = _prompts(args)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    try:
        _write(args, prompts, options)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    except KeyboardInterrupt:
        return 130
    return 0


def _write(args: argparse.Namespace, prompts: list[str], options: Options) -> None:
    # Help, and a slip of the hand, do not need it: it takes seconds, and an accelerator.
    from experiment import load
    from experiment.compiled import keep_programs
    from experiment.devices import check_platform
    from generation import generate

    keep_programs()
    check_platform()
    run = load(args.run, args.step)
    if args.rotary is not None:
        run = run.with_rotary(args.rotary)
    trained = run.config.data.context_length
    longest = max(run.as_tokens(prompt).shape[1] for prompt in prompts) + options.max_new_tokens
    if longest > trained:
        note = f"note: {longest} tokens at most, and the model was trained at {trained}"
        print(note, file=sys.stderr)
    stream = None if args.json else _Printer(prompts)
    found = generate(run, prompts, stream=stream, **vars(options))
    if not args.json:
        return
    results = [
        {"prompt": prompt, **vars(generated)}
        for prompt, generated in zip(prompts, found, strict=True)
    ]
    described: dict[str, Any] = {"run": args.run, "step": run.step, "rotary": run.rotary_label}
    print(json.dumps(described | {"results": results}, ensure_ascii=False))


class _Printer:
    """Prints texts in the order of their prompts, each as soon as those before are done."""

    def __init__(self, prompts: Sequence[str]):
        self._prompts, self._now = prompts, 0
        self._waiting = ["" for _ in prompts]
        self._ended = [False for _ in prompts]
        self._open()

    def __call__(self, number: int, text: str) -> None:
        """Takes new text of a prompt; empty: it was the last."""
        if text and number == self._now:
            print(text, end="", flush=True)
        elif text:
            self._waiting[number] += text
        else:
            self._ended[number] = True
        while self._now < len(self._prompts) and self._ended[self._now]:
            print(flush=True)
            self._now += 1
            self._open()

    def _open(self) -> None:
        if self._now < len(self._prompts):
            if len(self._prompts) > 1:
                print(f"> {self._prompts[self._now]}")
            print(self._waiting[self._now], end="", flush=True)


def _prompts(args: argparse.Namespace) -> list[str]:
    """What is asked.

    Raises:
      ValueError: if there is nothing, or a file cannot be read.
    """
    prompts = list(args.prompt)
    if args.prompts is not None:
        try:
            text = Path(args.prompts).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no UTF-8"
            raise ValueError(f"--prompts {args.prompts}: cannot be read ({reason})") from None
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            raise ValueError(f"--prompts {args.prompts}: holds no prompt, one a line")
        prompts += lines
    if prompts:
        return prompts
    if sys.stdin.isatty():
        raise ValueError('nothing to go on from: give --prompt TEXT ("" begins a document)')
    return [sys.stdin.read().removesuffix("\n")]


class _Parser(Parser):
    """Its help is the docstring of this file."""

    def format_help(self) -> str:
        """What `--help` prints."""
        return f"{__doc__}\n"


def _parser() -> Parser:
    parser = _Parser(prog="generate.py")
    defaults = Options()
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--prompts")
    parser.add_argument("--max-new-tokens", type=int, default=defaults.max_new_tokens)
    parser.add_argument("--temperature", type=float, default=defaults.temperature)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--rotary", type=expression)
    parser.add_argument("--step", type=int)
    parser.add_argument("--dtype", default=defaults.dtype)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
