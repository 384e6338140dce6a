"""Runs as a model of lm-evaluation-harness, which this module imports; see `interop.scorer`."""

# The harness belongs to an extra.
# pyright: reportMissingImports=false

from collections.abc import Mapping
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ropewalk.experiment import load
from ropewalk.experiment.config import TRAINED
from ropewalk.interop.scorer import Pair, Scorer

_SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}


@register_model("ropewalk")
class RunLM(TemplateLM):
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
        super().__init__()
        self.scorer = Scorer(load(run, step), rotary=rotary, max_length=max_length)

    @property
    def eot_token_id(self) -> int:
        """EOS."""
        return self.scorer.tokenizer.eos_id

    @property
    def prefix_token_id(self) -> int:
        """BOS."""
        return self.scorer.tokenizer.bos_id

    @property
    def max_length(self) -> int:
        """Largest number of input tokens."""
        return self.scorer.max_length

    @property
    def tokenizer_name(self) -> str:
        """Fingerprint of the tokenizer."""
        return self.scorer.tokenizer.fingerprint

    def tok_encode(self, string, add_special_tokens=None, **_) -> list[int]:
        """Return the ids of a text, with BOS in front by default."""
        return self.scorer.encode(string, bos=add_special_tokens is not False)

    def _encode_pair(self, context, continuation):
        context_ids, continuation_ids = super()._encode_pair(context, continuation)
        if not continuation_ids:  # one piece covers the cut and the whole continuation
            ids = self.tok_encode(context + continuation)
            context_ids, continuation_ids = ids[:-1], ids[-1:]
        return context_ids, continuation_ids

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_):
        return self.scorer.log_likelihoods([(context, rest) for _, context, rest in requests])

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """Return the log likelihood of each text, nats."""
        texts = [self._windows(request.args[0]) for request in requests]
        scores = iter(self.scorer.log_likelihoods([pair for text in texts for pair in text]))
        return [float(sum(next(scores)[0] for _ in text)) for text in texts]

    def _windows(self, text: str) -> list[Pair]:
        """Return windows that score each id once, after BOS or at least one id scored before."""
        ids = self.scorer.encode(text, bos=False)
        windows = get_rolling_token_windows(
            ids, self.prefix_token_id, self.max_length, context_len=1
        )
        return [make_disjoint_window(window) for window in windows]

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """Return the text after each prompt."""
        prompts = [request.args[0] for request in requests]
        options = [_options(normalize_gen_kwargs(request.args[1])) for request in requests]
        return self.scorer.generate(prompts, options)


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the harness's settings of generation to options of `inference.generate`."""
    until = arguments.get("until") or ()
    stop = tuple(filter(None, (until,) if isinstance(until, str) else until))
    options = {"max_new_tokens": arguments["max_gen_toks"], "stop": stop}
    if arguments.get("do_sample"):
        options |= {name: arguments.get(name, value) for name, value in _SAMPLING.items()}
    return options
