"""Evaluation with lm-evaluation-harness; `interop.__main__` has the command."""

import argparse
import functools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import utils.files
from interop.harness import TRAINED, Bos, Generation, Pair, Scorer
from utils.messages import nearest
from utils.paths import as_path

TASKS = Path(__file__).parent / "tasks"
_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    include = [str(TASKS), *([arguments.include_path] if arguments.include_path else [])]
    language_model = register()
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # compute standard errors in this process
    # Its warnings do not apply here; problems with tasks are errors.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    from lm_eval.evaluator import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]
    from lm_eval.utils import make_table  # pyright: ignore[reportMissingImports]

    names = arguments.tasks.split(",")
    for defaults in (False, True):  # the harness's own tasks are thousands of files
        manager = TaskManager(
            include_path=include, include_defaults=defaults, metadata=arguments.metadata or {}
        )
        unknown = [n for n in names if not manager.match_tasks([n]) and not Path(n).is_file()]
        if not unknown:
            break
    else:
        raise ValueError(
            f"--tasks: unknown task {unknown[0]!r}; {nearest(unknown[0], manager.all_tasks)}"
        )
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
    assert results is not None  # None in a job's other processes, which do not occur here
    out = as_path(arguments.out or _default_out(model.scorer, names))
    contents = ("results", "groups", "n-samples", "n-shot", "versions", "higher_is_better")
    content = {"model": model.scorer.describe()}
    content |= {name: value for name, value in results.items() if name in contents}
    out.parent.mkdir(parents=True, exist_ok=True)
    utils.files.write_atomically(out, json.dumps(content, indent=2, default=str) + "\n")
    print(make_table(results))
    print(f"results: {out}", file=sys.stderr)
    return 0


def _default_out(scorer: Scorer, names: Sequence[str]) -> Path:
    """Return a path in the run directory, named by task, step and untrained variant."""
    run, description = scorer.run, scorer.describe()
    trained = run.directory.config_at(run.step).model.rotary
    rotary = [] if run.config.model.rotary == trained else [description["rotary"]]
    name = ",".join([*names, f"step={description['step']}", *rotary])
    short = re.sub(r"[^\w=,.()+-]", "_", name)[:200]
    return run.directory.path / "lm_eval" / f"{short}.json"


@functools.cache
def register() -> type:
    """Return the harness's class for runs, and register it as `ropewalk`.

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

    model_class = _make_class(TemplateLM, normalize_gen_kwargs)
    register_model("ropewalk")(model_class)
    return model_class


def _make_class(template: Any, normalize: Callable[[dict], Mapping]) -> type:
    """Return the class; see `register`.

    Args:
      template: the harness's `TemplateLM`.
      normalize: its function that completes settings of generation.
    """

    class RunLM(template):
        """A run in the harness's interface.

        Attributes:
          scorer: the run.
        """

        def __init__(
            self,
            run: str,
            *,
            rotary: str = TRAINED,
            max_length: int | None = None,
            bos: Bos = "first",
            step: int | None = None,
            **_: Any,  # batch_size, device and others, which JAX decides
        ):
            from experiment import load

            super().__init__()
            self.scorer = Scorer(load(run, step), rotary=rotary, max_length=max_length, bos=bos)

        @property
        def eot_token_id(self) -> int:
            return self.scorer.tokenizer.eos_id

        @property
        def prefix_token_id(self) -> int:
            return self.scorer.tokenizer.bos_id

        @property
        def max_length(self) -> int:
            return self.scorer.max_length

        @property
        def tokenizer_name(self) -> str:
            return self.scorer.tokenizer.fingerprint

        def tok_encode(self, string, add_special_tokens=None, **_) -> list[int]:
            return self.scorer.encode(string, bos=add_special_tokens is not False)

        def _encode_pair(self, context, continuation):
            context_ids, continuation_ids = super()._encode_pair(context, continuation)
            if not continuation_ids:  # one piece covers the cut and the whole continuation
                ids = self.tok_encode(context + continuation)
                context_ids, continuation_ids = ids[:-1], ids[-1:]
            return context_ids, continuation_ids

        def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_):
            return self.scorer.log_likelihoods([Pair(*ids) for _, *ids in requests])

        def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
            windows = [self.scorer.windows(request.args[0]) for request in requests]
            scores = iter(self.scorer.log_likelihoods([pair for text in windows for pair in text]))
            return [float(sum(next(scores)[0] for _ in text)) for text in windows]

        def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
            prompts = [request.args[0] for request in requests]
            settings = [_settings(normalize(request.args[1])) for request in requests]
            return self.scorer.generate(prompts, settings)

    return RunLM


def _settings(arguments: Mapping[str, Any]) -> Generation:
    """Convert the harness's settings of generation."""
    until = arguments.get("until") or []
    until = (until,) if isinstance(until, str) else tuple(until)
    sampling = ()
    if arguments.get("do_sample"):
        sampling = tuple((name, arguments.get(name, value)) for name, value in _SAMPLING.items())
    return Generation(tuple(filter(None, until)), arguments["max_gen_toks"], sampling)
