"""Copying scores 100% on every task of copying, and 0 or chance once answers are not its own.

Two ways to copy: `copied`, in numpy, on every task; and parameters of our own transformer, set by
hand, which must do the same through `evals.score`.

Suffix matching is enough wherever the cue repeats words that stand before the answer. In RULER's
cue only the space before the number does, which no other id of the prompt is (here), so one needle
is found and several are not: which one is asked stands elsewhere in the question. The same holds
for LongEval's official question. That their answers can be had from the prompt is shown on its text
(test_needle, test_lines).
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import evals
from evals import score
from evals.score import Candidate
from model import transformer
from model.rotary.rope import Rope
from tests.evals.helpers import make_documents
from tests.evals.oracles import copying_model, exact_matches
from tests.models import small_model

# Task, length, and layers of the hand-built model before its last: 2^n ids must tell places apart.
# None: not asked of the model, which would be wide, for it has a feature for every id that occurs.
COPYING = (
    ("kv", 96, 0),
    ("lagcopy(lag=20)", 40, 0),
    ("lagcopy", 96, 0),
    ("lagcopy(text=natural,lag=30)", 90, None),
    ("lines", 150, 4),
    ("needle", 250, 3),
    ("needle(haystack=text)", 200, None),
    ("needle(haystack=text,cue=easy)", 200, None),
    ("needle(haystack=text,cue=gkamradt)", 200, None),
    ("passkey", 180, 3),
    ("phonebook", 200, 3),
)
CHEAP, LONG = COPYING[:3], ("lines", "passkey", "phonebook")


def documents(task, length, config, tokenizer, count=4):
    return make_documents(evals.parse(task), config, tokenizer, length, range(count))


def answer_ids(document):
    """Indices of all ids of all answers."""
    return np.concatenate([np.arange(s, s + n) for s, n, _ in document.answers])


def with_answers(document, ids):
    tokens = document.tokens.copy()
    tokens[answer_ids(document)] = ids
    return dataclasses.replace(document, tokens=tokens)


def shifted(document):
    """Every answer's ids one place on: a model right about this is scored one position off."""
    return with_answers(document, np.roll(document.tokens[answer_ids(document)], 1))


def swapped(prompts):
    """Each document with the answers of another one: a model right about this knew them."""
    rotated = prompts[len(prompts) // 2 :] + prompts[: len(prompts) // 2]
    return [
        with_answers(prompt, np.resize(other.tokens[answer_ids(other)], len(answer_ids(prompt))))
        for prompt, other in zip(prompts, rotated, strict=True)
    ]


def collapses(task: str) -> tuple[bool, bool]:
    """Tell whether shifted and swapped answers can be told from right ones.

    Where a text is said again and again, what is put into one saying is copied by the next. And in
    the Dolores Park needle all documents have one answer.
    """
    return not task.startswith("lagcopy"), task != "lagcopy" and "cue" not in task


@pytest.mark.parametrize(("task", "length", "_"), COPYING)
def test_copying_finds_every_answer_and_only_the_right_one(
    task, length, _, prose_config, prompt_tokenizer
):
    prompts = documents(task, length, prose_config, prompt_tokenizer, 12)
    assert exact_matches(prompts).all()
    chance = evals.parse(task).chance(prompt_tokenizer)
    for applies, changed in zip(
        collapses(task), ([shifted(prompt) for prompt in prompts], swapped(prompts)), strict=True
    ):
        if applies:
            right = exact_matches(changed)
            assert right.sum() <= stats.binom.ppf(1 - 1e-6, len(right), max(chance, 0.01))


@pytest.mark.parametrize(
    ("task", "length", "num_copies"),
    [
        pytest.param(
            *case,
            marks=[]
            if case in CHEAP
            else pytest.mark.long
            if case[0] in LONG
            else pytest.mark.slow,
            id=case[0],
        )
        for case in COPYING
        if case[2] is not None
    ],
)
def test_a_transformer_built_to_copy_scores_the_same(
    task, length, num_copies, prose_config, prompt_tokenizer
):
    prompts = documents(task, length, prose_config, prompt_tokenizer)
    prompts = prompts[:: max(1, len(prompts) // 6)]
    inputs = [*prompts, *map(shifted, prompts), *swapped(prompts)]
    used = np.unique(np.concatenate([prompt.tokens for prompt in inputs]))
    config, params = copying_model(used, prompt_tokenizer.vocab_size, num_copies)
    table = config.position_table(length)
    candidate = Candidate(params, lambda row_length: table)
    result = score.score(config, [candidate], inputs, length)
    right, shifted_right, swapped_right = np.split(result.exact_match[0], 3)
    assert right.all()
    assert result.nll[0][: len(right)].max() < 1e-3
    for applies, matches in zip(collapses(task), (shifted_right, swapped_right), strict=True):
        if applies:
            assert matches.mean() < 0.1


def test_an_untrained_model_scores_chance(prose_config, prompt_tokenizer):
    config = small_model(vocab_size=prompt_tokenizer.vocab_size, rotary=Rope(base=100.0))
    table = config.position_table(320)
    candidate = Candidate(transformer.init(config, 0), lambda row_length: table)
    tasks = [task for task, *_ in COPYING] + ["needle(keys=4)", "lines(template=official)"]
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
