"""Asks a run tasks of lm-evaluation-harness: python -m interop lm_eval RUN --tasks NAME[,NAME...]

The harness has no way for others to bring a model but to call it: this does, with a class for runs
(also registered there as `ropewalk`). Its own tasks, those of `--include_path`, and three that need
no network: local_text (bits a byte of held-out text), local_next_line (which of four comes next)
and local_passkey.

A text begins with BOS, once; `--bos every` puts one before each window of a long text too. Results
are written to lm_eval/ in the run's directory, or to --out.
"""

import argparse
import functools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import utils.files
from interop.harness import TRAINED, Asked, Bos, Pair, Wish
from utils.command_line import expression, tokens
from utils.messages import nearest
from utils.paths import as_path

TASKS = Path(__file__).parent / "tasks"
_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of the command line."""
    add = parser.add_argument
    add("run_path", metavar="RUN", help="a run directory")
    add("--tasks", required=True, metavar="NAME[,NAME...]", help="tasks, groups or .yaml files")
    add("--include_path", metavar="DIR", help="a folder of tasks of your own")
    add("--limit", type=float, metavar="N", help="questions of each task; below 1, their share")
    add("--num_fewshot", type=int, metavar="N", help="examples before each (default: the task's)")
    add("--max_length", type=tokens, metavar="TOKENS", help="default: what it was trained at")
    text = "another variant (see evaluate.py)"
    add("--rotary", default=TRAINED, type=expression, metavar="EXPR", help=text)
    add("--bos", choices=get_args(Bos), default="first", help="where a BOS is put")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    add("--metadata", type=json.loads, metavar="JSON", help="for tasks that take it")
    add("--out", type=Path, metavar="FILE", help="default: RUN/lm_eval/TASKS.json")


def main(arguments: argparse.Namespace) -> int:
    """The command."""
    include = [str(TASKS), *([arguments.include_path] if arguments.include_path else [])]
    for folder in include:
        if not Path(folder).is_dir():
            raise ValueError(f"--include_path {folder}: no such folder")
    language_model = register()
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # standard errors without forks of this process
    # It warns of what is as it should be; a task that cannot be read, or no answer, is an error.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    from lm_eval.evaluator import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]
    from lm_eval.utils import make_table  # pyright: ignore[reportMissingImports]

    names = arguments.tasks.split(",")
    for defaults in (False, True):  # the harness's own are thousands of files: only if asked for
        manager = TaskManager(
            include_path=include, include_defaults=defaults, metadata=arguments.metadata or {}
        )
        unknown = [n for n in names if not manager.match_tasks([n]) and not Path(n).is_file()]
        if not unknown:
            break
    else:
        wrong = unknown[0]
        raise ValueError(f"unknown task {wrong!r}; {nearest(wrong, manager.all_tasks)}")
    model = language_model(
        arguments.run_path,
        rotary=arguments.rotary,
        max_length=arguments.max_length,
        bos=arguments.bos,
        step=arguments.step,
    )
    results = simple_evaluate(
        model,
        tasks=names,
        task_manager=manager,
        limit=arguments.limit,
        num_fewshot=arguments.num_fewshot,
        log_samples=False,
        bootstrap_iters=1000,
        torch_random_seed=None,  # pyright: ignore[reportArgumentType]
    )
    assert results is not None  # as it is in processes of a larger job that do not write
    out = arguments.out or default_out(model.asked, names)
    write(out, results, model.asked)
    print(make_table(results))
    print(f"results: {out}", file=sys.stderr)
    return 0


def default_out(asked: Asked, names: Sequence[str]) -> Path:
    """The path of results: in the run's directory, by task, step and, if not trained, variant."""
    says = asked.says()
    trained = asked.run.directory.config_at(asked.run.step).model.rotary
    rotary = [] if asked.run.config.model.rotary == trained else [says["rotary"]]
    name = ",".join([*names, f"step={says['step']}", *rotary])
    short = re.sub(r"[^\w=,.()+-]", "_", name)[:200]
    return asked.run.directory.path / "lm_eval" / f"{short}.json"


def write(path: Path, results: Mapping[str, Any], asked: Asked) -> None:
    """Results as the harness has them, and what they are of, as JSON."""
    content = {"model": asked.says()} | {
        name: results[name]
        for name in ("results", "groups", "n-samples", "n-shot", "versions", "higher_is_better")
        if name in results
    }
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    utils.files.write_atomically(path, json.dumps(content, indent=2, default=str) + "\n")


@functools.cache
def register() -> type:
    """The harness's class for runs, known to it as `ropewalk`.

    Raises:
      ValueError: if lm-evaluation-harness is not installed.
    """
    try:
        from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
        from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
        from lm_eval.models.utils import (  # pyright: ignore[reportMissingImports]
            normalize_gen_kwargs,
        )
    except ImportError:
        raise ValueError(
            "lm_eval needs lm-evaluation-harness: run `make test-hf` once, or pip install lm-eval"
        ) from None

    model_class = _class(TemplateLM, normalize_gen_kwargs)
    register_model("ropewalk")(model_class)
    return model_class


def _class(template: Any, normalize: Callable[[dict], Mapping]) -> type:
    """The class, below the harness's `TemplateLM`; `normalize` reads what it says of a text."""

    class RunLM(template):
        """A run, as the harness asks it.

        Attributes:
          asked: what answers.
        """

        def __init__(
            self,
            run: str,
            *,
            rotary: str = TRAINED,
            max_length: int | None = None,
            bos: Bos = "first",
            step: int | None = None,
            **_: Any,  # batch_size, device and the like, which are the library's own business here
        ):
            from experiment import load

            super().__init__()
            self.asked = Asked(load(run, step), rotary=rotary, max_length=max_length, bos=bos)

        @property
        def eot_token_id(self) -> int:
            return self.asked.tokenizer.eos_id

        @property
        def prefix_token_id(self) -> int:
            return self.asked.tokenizer.bos_id

        @property
        def max_length(self) -> int:
            return self.asked.max_length

        @property
        def tokenizer_name(self) -> str:
            return self.asked.tokenizer.fingerprint

        def tok_encode(self, string, add_special_tokens=None, **_) -> list[int]:
            return self.asked.encode(string, bos=add_special_tokens is not False)

        def _encode_pair(self, context, continuation):
            context_ids, continuation_ids = super()._encode_pair(context, continuation)
            if (
                not continuation_ids
            ):  # the context's last characters and all that follows share one piece
                ids = self.tok_encode(context + continuation)
                context_ids, continuation_ids = ids[:-1], ids[-1:]
            return context_ids, continuation_ids

        def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_):
            scores = self.asked.log_likelihoods([Pair(*ids) for _, *ids in requests])
            for (texts, *_), answer in zip(requests, scores, strict=True):
                self.cache_hook.add_partial("loglikelihood", texts, answer)
            return scores

        def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
            windows = [self.asked.windows(request.args[0]) for request in requests]
            scores = iter(self.asked.log_likelihoods([pair for text in windows for pair in text]))
            totals = [float(sum(next(scores)[0] for _ in text)) for text in windows]
            for request, total in zip(requests, totals, strict=True):
                self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
            return totals

        def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
            prompts, wishes = [], []
            for request in requests:
                prompt, arguments = request.args
                prompts.append(prompt)
                wishes.append(_wish(normalize(arguments)))
            texts = self.asked.generate(prompts, wishes)
            for request, text in zip(requests, texts, strict=True):
                self.cache_hook.add_partial("generate_until", request.args, text)
            return texts

    return RunLM


def _wish(arguments: Mapping[str, Any]) -> Wish:
    """From what the harness says of a text that is to be written."""
    until = arguments.get("until") or []
    until = (until,) if isinstance(until, str) else tuple(until)
    drawn = ()
    if arguments.get("do_sample"):
        drawn = tuple((name, arguments.get(name, value)) for name, value in _SAMPLING.items())
    return Wish(tuple(string for string in until if string), arguments["max_gen_toks"], drawn)
