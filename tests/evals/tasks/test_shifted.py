"""Relative positions: the loss of a text does not depend on where it stands."""

import dataclasses
import re

import pytest

from ropewalk.evals import runner
from ropewalk.model import transformer
from ropewalk.reporting.task_view import view_of
from tests.models import small_model

DYNAMIC = "dynamic_yarn(base=100,original_context_length=32,rotary_fraction=0.5)"
VARIANTS = {  # verdict on their positions
    f"[{DYNAMIC},nope]": "equal within 1e-5",
    "rope(base=100,log_n=train)": r"differs by 0\.\d+",
}


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "verdict"), VARIANTS.items())
def test_relative_variants_do_not_see_the_place(variant, verdict, text_config, text_tokenizer):
    model = small_model(vocab_size=1024, num_layers=2, window=(16, None), rotary=variant)
    config = dataclasses.replace(text_config, model=model)
    params = transformer.init(model, 0)
    member = runner.Loaded("", config, text_tokenizer, params, 0, (model.rotary,))
    options = runner.Options(tasks=["shifted"], documents=3)
    ((questions, (rows,)),) = runner.score_members([member], options)
    assert [d.first_position for d in questions.documents] == 3 * [0, 8192, 65_536]
    columns = view_of("shifted").columns
    assert re.fullmatch(verdict, columns(rows, None)["positions"])
    assert columns({name: column[::3] for name, column in rows.items()}, None) == {"positions": "–"}
    rows["nll"][4] += 1e-3
    assert "differs by 0." in columns(rows, None)["positions"]
