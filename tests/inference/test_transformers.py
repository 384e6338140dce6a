"""Greedy tokens equal those of transformers' `generate` with the same weights."""

import numpy as np
import pytest

from ropewalk.inference.engine import Engine, Prompts
from ropewalk.inference.options import Options
from tests.inference.models import LATENT, V, config, params

pytestmark = pytest.mark.hf

PROMPT = (np.arange(23) * 37 % V).tolist()
CONTEXT = 256  # of our run; where longrope would change, theirs too
MODELS = {
    "gqa": {},
    "partial": dict(rotary="rope(base=500,rotary_fraction=0.5)"),
    "yarn": dict(rotary=f"yarn(base=500,factor=4,original_context_length={CONTEXT // 4})"),
    "window": dict(window=7),
    "window by layer": dict(window=(7, None)),
    "latent": LATENT | dict(norm_epsilon=1e-6),
    "qk-norm": dict(qk_norm=True),
    "biases": dict(qkv_bias=True),
}


LONG = ("window by layer", "qk-norm", "biases")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in MODELS]
)
def test_greedy_tokens_equal_transformers(name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from ropewalk.benchmarks.decode import transformers_generate

    model = config(**MODELS[name])
    weights = params(model)
    expected = transformers_generate(model, weights, CONTEXT)(PROMPT, 200)
    batch = Prompts([PROMPT], [0])
    parts = Engine(model, CONTEXT, weights).generate(batch, Options(max_new_tokens=200), -1)
    assert np.concatenate(list(parts), axis=1)[0].tolist() == expected
    assert len(set(expected)) > 20
