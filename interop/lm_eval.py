"""Evaluation with lm-evaluation-harness; `interop.__main__` has the command."""

import argparse
import functools
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.interop.harness import TRAINED, Generation, Pair, Scorer

_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}


def main(arguments: argparse.Namespace, others: list[str]) -> int:
    """Run the harness's command line with a run and the `others` of the arguments."""
    register()
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # compute standard errors in this process
    names = ("rotary", "max_length", "step")
    model = {"run": arguments.run_path, **{name: getattr(arguments, name) for name in names}}
    options = ["--model_args", json.dumps(model), "--output_path", arguments.output_path]
    sys.argv[:] = ["lm_eval", "run", "--model", "ropewalk", *options, *others]
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="lm_eval")
    script.load()()
    return 0


@functools.cache
def register() -> type:
    """Return the harness's class for runs, and register it as `ropewalk`.

    Raises:
      ValueError: if lm-evaluation-harness is not installed.
    """
    try:
        from lm_eval import utils  # pyright: ignore
        from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
        from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
        from lm_eval.models.utils import (  # pyright: ignore[reportMissingImports]
            normalize_gen_kwargs,
        )
    except ImportError:
        raise ValueError(
            "lm_eval needs lm-evaluation-harness: run `make test-hf` once, or pip install lm-eval"
        ) from None

    model_class = _make_class(TemplateLM, utils, normalize_gen_kwargs)
    register_model("ropewalk")(model_class)
    return model_class


def _make_class(template: Any, utils: Any, normalize: Callable[[dict], Mapping]) -> type:
    """Return the class; see `register`.

    Args:
      template: the harness's `TemplateLM`.
      utils: its module of that name.
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
            step: int | None = None,
            **_: Any,  # batch_size, device and others, which JAX decides
        ):
            from ropewalk.experiment import load

            super().__init__()
            self.scorer = Scorer(load(run, step), rotary=rotary, max_length=max_length)

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
            texts = [_windows(utils, self.scorer, request.args[0]) for request in requests]
            scores = iter(self.scorer.log_likelihoods([pair for text in texts for pair in text]))
            return [float(sum(next(scores)[0] for _ in text)) for text in texts]

        def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
            prompts = [request.args[0] for request in requests]
            settings = [_settings(normalize(request.args[1])) for request in requests]
            return self.scorer.generate(prompts, settings)

    return RunLM


def _windows(utils: Any, scorer: Scorer, text: str) -> list[Pair]:
    """Return windows that score each id once, after BOS or at least one id scored before."""
    windows = utils.get_rolling_token_windows(
        scorer.encode(text, bos=False), scorer.tokenizer.bos_id, scorer.max_length, context_len=1
    )
    return [Pair(*utils.make_disjoint_window(window)) for window in windows]


def _settings(arguments: Mapping[str, Any]) -> Generation:
    """Convert the harness's settings of generation."""
    until = arguments.get("until") or []
    until = (until,) if isinstance(until, str) else tuple(until)
    sampling = ()
    if arguments.get("do_sample"):
        sampling = tuple((name, arguments.get(name, value)) for name, value in _SAMPLING.items())
    return Generation(tuple(filter(None, until)), arguments["max_gen_toks"], sampling)
