"""Copying scores 100% on every task of copying, and an untrained model chance.

Suffix matching is enough wherever the cue repeats words that stand before the answer. In RULER's
cue only the space before the number does, which no other id of the prompt is (here), so one needle
is found and several are not: which one is asked stands elsewhere in the question. The same holds
for LongEval's official question. That their answers can be had from the prompt is shown on its text
(test_needle, test_lines).
"""

import numpy as np
import pytest
from scipy import stats

from ropewalk import evals
from ropewalk.evals import score
from ropewalk.evals.score import Candidate
from ropewalk.model import transformer
from ropewalk.model.rotary.rope import Rope
from tests.evals.helpers import make_documents
from tests.evals.oracles import exact_matches
from tests.models import small_model

COPYING = {  # length by task
    "kv": 96,
    "lagcopy(lag=20)": 40,
    "lagcopy": 96,
    "lagcopy(text=natural,lag=30)": 90,
    "lines": 150,
    "needle": 250,
    "needle(haystack=text)": 200,
    "needle(haystack=text,cue=easy)": 200,
    "needle(haystack=text,cue=gkamradt)": 200,
    "passkey": 180,
    "phonebook": 200,
}


def documents(task, length, config, tokenizer, count=4):
    return make_documents(evals.parse(task), config, tokenizer, length, range(count))


@pytest.mark.parametrize(("task", "length"), COPYING.items())
def test_copying_finds_every_answer(task, length, prose_config, prompt_tokenizer):
    assert exact_matches(documents(task, length, prose_config, prompt_tokenizer, 12)).all()


def test_an_untrained_model_scores_chance(prose_config, prompt_tokenizer):
    config = small_model(vocab_size=prompt_tokenizer.vocab_size, rotary=Rope(base=100.0))
    table = config.position_table(320)
    candidate = Candidate(transformer.init(config, 0), lambda row_length: table)
    tasks = [*COPYING, "needle(keys=4)", "lines(template=official)"]
    tasks.remove("lagcopy(text=natural,lag=30)")  # chance is not the measure of natural text
    parts = [documents(task, 320, prose_config, prompt_tokenizer, 2)[:6] for task in tasks]
    result = score.score(config, [candidate], [prompt for part in parts for prompt in part], 320)
    right = np.split(
        result.exact_match[0],
        np.cumsum([sum(len(prompt.answers) for prompt in part) for part in parts])[:-1],
    )
    for task, matches in zip(tasks, right, strict=True):
        chance = evals.parse(task).chance(prompt_tokenizer)
        assert matches.sum() <= stats.binom.ppf(1 - 1e-6, len(matches), chance), task
