"""Relative positions: the loss of a text does not depend on where it stands."""

import numpy as np
import pytest

from ropewalk.evals import score
from ropewalk.evals.score import Candidate
from ropewalk.model import transformer
from tests.evals.helpers import make_documents
from tests.models import small_model

VARIANTS = {  # by whether they see where a text stands
    "[dynamic_yarn(base=100,original_context_length=32,rotary_fraction=0.5),nope]": False,
    "rope(base=100,log_n=train)": True,
}


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "sees"), VARIANTS.items())
def test_relative_variants_do_not_see_the_place(variant, sees, text_config, text_tokenizer):
    config = small_model(vocab_size=1024, num_layers=2, window=(16, None), rotary=variant)
    candidate = Candidate(transformer.init(config, 0), lambda size: config.position_table(64, size))
    architecture, losses = config.forward_architecture(), []
    for first in (0, 8192, 65_536):
        task = f"shifted(first={first})"
        documents = make_documents(task, text_config, text_tokenizer, 64, range(3))
        losses.append(float(score.score(architecture, [candidate], documents, 64).nll.mean()))
    if sees:
        assert np.abs(np.array(losses[1:]) - losses[0]).min() > 1e-5
    else:
        np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
