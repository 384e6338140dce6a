"""Relative positions: the loss of a text does not depend on where it stands."""

import numpy as np
import pytest

from ropewalk.evals import score
from ropewalk.evals.score import Candidate
from ropewalk.model import rotary, transformer
from tests.evals.helpers import make_documents
from tests.models import small_model

VARIANTS = [
    "rope(base=100)",
    "rope(base=10,rotary_fraction=0.5)",
    "yarn(base=100,factor=4,original_context_length=64)",
    "dynamic_yarn(base=100,original_context_length=32)",
    "[rope(base=100),nope]",
]
LOG_N = "rope(base=100,log_n=train)"


@pytest.fixture(scope="module")
def losses(text_config, text_tokenizer):
    """Mean loss by variant, at three positions."""
    documents = {
        first: make_documents(f"shifted(first={first})", text_config, text_tokenizer, 64, range(3))
        for first in (0, 8192, 65_536)
    }

    def of(variant: str) -> list[float]:
        config = small_model(
            vocab_size=1024, num_layers=2, window=(16, None), rotary=rotary.parse_pattern(variant)
        )
        params = transformer.init(config, 0)
        candidate = Candidate(params, lambda size: config.position_table(64, size))
        return [
            float(score.score(config.forward_architecture(), [candidate], rows, 64).nll.mean())
            for rows in documents.values()
        ]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_relative_variants_do_not_see_where_a_text_stands(losses, variant):
    np.testing.assert_allclose(losses(variant), losses(variant)[0], rtol=1e-6)


@pytest.mark.slow
def test_log_n_sees_it(losses):
    first, *others = losses(LOG_N)
    assert all(abs(other - first) > 1e-5 for other in others)
