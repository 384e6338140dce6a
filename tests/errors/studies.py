"""Cards that cannot be run, rows that are not of them, and what `python -m studies` refuses."""

import contextlib
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

from configs import find_config
from configs.changes import change
from studies import load_cards, rows, schedule
from studies.card import Card, Measurement, Member
from studies.jobs import card_runs
from tests.errors.table import Row

WSD = change(find_config("tiny"), train=dict(schedule="wsd", warmup_steps=2))
TEN = Member(name="ten", overrides=("model.rotary.base=10",))


def card(**changes) -> Card:
    """A card of two bases."""
    fields = dict(question="?", shared=WSD, members=(TEN, Member(name="b1e4")), tokens=10_000)
    return Card(name="echo", **(fields | changes))


CARDS = """
from configs import find_config
from configs.changes import change
from studies.card import Card, Member

SHARED = change(
    find_config("tiny"), data=dict(source="retrieval", retrieval_tasks=("kv",)),
    train=dict(schedule="wsd"), evals=dict(tasks=("kv",)),
)
TEN = Member(name="ten", overrides=("model.rotary.base=10",))
cards = [
    Card(name="bases", question="?", shared=SHARED, tokens=80 * 8 * 64, members=(TEN,)),
    Card(name="one", question="?", shared=SHARED, members=(TEN,)),
]
"""
STUDY = {"study/cards.py": CARDS}


def studied(command: str, says: str, *, files: dict | None = None, given: Callable | None = None):
    """A row of a study of one's own."""
    more = {"given": given} if given else {}
    return Row(f"-m studies {command}", says, files=STUDY | (files or {}), **more)


def kept(says: str, content: bytes) -> Row:
    """A row of a study with a file of results."""
    path = "study/rows/one/ten,seed=0.10240.json.gz"
    return studied("status ./study", says, files={path: content})


def measured(says: str, **changes) -> Row:
    """A row of a study with results of another run."""

    def write(_):
        (run,) = card_runs(load_cards("./study")["one"], 0)
        fields = dict(
            card="one", member="ten", seed=0, tokens=run.tokens(0), final="", config=run.budgets[0],
            answers=(), l50=math.inf, mean_accuracy=0.5, ceiling=1.0, losses={},
            made_by={"estimator": 2}, core_seconds=1.0,
        )  # fmt: skip
        rows.write(Path("study/rows"), rows.Row(**(fields | changes)))

    return studied("status ./study", says, given=write)


ROWS = [
    Row(
        "-m studies run capability --only C1 --part 99", "no part 99: capability has parts 0 to {}"
    ),
    Row(
        "-m studies status capabilty",
        "unknown study 'capabilty'; did you mean 'capability'? (valid: capability)",
    ),
    Row(
        "-m studies status ./empty",
        "./empty has no cards: its files define none",
        files={"empty/cards.py": ""},
    ),
    Row(
        "-m studies status ./study",
        "{}/study/more.py: a card named bases exists already",
        files={**STUDY, "study/more.py": CARDS},
    ),
    studied(
        "status ./study --only base",
        "study ./study has no card 'base'; did you mean 'bases'? (valid: bases, one)",
    ),
    studied("status ./study --seeds 0,x", "--seeds 0,x must be whole numbers, like 0,1,2"),
    studied("run ./study --cores 0", "--cores 0 must be at least 1"),
    studied(
        "run ./study",
        "card bases, member ten has no forecast; first run: python -m studies forecast ./study",
    ),
    studied(
        "run ./study",
        "{}/study/forecasts.json is not JSON (Expecting property name enclosed in "
        "double quotes); restore it",
        files={"study/forecasts.json": "{"},
    ),
    studied(
        "run ./study --only one",
        "another process runs ./study in runs/studies/study; wait for it",
        given=lambda patch: patch.setattr(
            schedule, "try_lock", lambda path: contextlib.nullcontext(False)
        ),
    ),
    studied("report ./study --out .", "--out . is a folder; write --out report.html"),
    kept(
        "{}/study/rows/one/ten,seed=0.10240.json.gz is damaged (Expecting value); "
        "delete it, and `run` measures it anew",
        b"",
    ),
    kept(
        "{}/study/rows/one/ten,seed=0.10240.json.gz is damaged (Expecting property "
        "name enclosed in double quotes); delete it, and `run` measures it anew",
        gzip.compress(b"{"),
    ),
    kept(
        "{}/study/rows/one/ten,seed=0.10240.json.gz is damaged ('str' object cannot "
        "be interpreted as an integer); delete it, and `run` measures it anew",
        gzip.compress(b"[]"),
    ),
    kept(
        "{}/study/rows/one/ten,seed=0.10240.json.gz is damaged ('l50'); delete it, "
        "and `run` measures it anew",
        gzip.compress(json.dumps({"version": 1}).encode()),
    ),
    kept(
        "{}/study/rows/one/ten,seed=0.10240.json.gz: rows of version 0, not 1; "
        "delete it, and `run` measures it anew",
        gzip.compress(json.dumps({"version": 0}).encode()),
    ),
    measured(
        "one/ten,seed=0.5.json.gz belongs to no run of card one as it is now; delete that "
        "row, or restore the card's members and budget",
        tokens=5,
    ),
    measured(
        "one/ten,seed=0.10240.json.gz has model.rotary.base=10000.0, "
        "and card one now has model.rotary.base=10.0; delete that row, and `run` "
        "measures it anew",
        config=WSD,
    ),
    measured(
        "one/ten,seed=0.10240.json.gz has estimator 1, and the current "
        "estimator is 2; delete that row, and `run` measures it anew",
        made_by={"estimator": 1},
    ),
    Row(lambda: card(members=(TEN, TEN)), "card echo: two members are called ten"),
    Row(lambda: card(measurements=()), "card echo needs measurements"),
    Row(
        lambda: card(shared=change(WSD, train=dict(schedule="cosine"))),
        "card echo: doublings of tokens need train.schedule=wsd, not cosine",
    ),
    Row(
        lambda: card(members=(Member(name="a b"),)),
        "card echo: 'a b' names files; leave out spaces and / * ? [ ]",
    ),
    Row(
        lambda: card(shared=change(WSD, stages=(("train.num_steps=2",),))),
        "card echo: doublings of tokens and stages exclude each other",
    ),
    Row(
        lambda: Measurement(name="none", masked_heads=((0, -1),)),
        "masked_heads must be a whole number of at least 0, got -1",
    ),
    Row(
        lambda: card(members=(Member(name="a", overrides=("model.bas=1",)),)).configs(),
        "card echo, member a: unknown field 'model.bas'; did you mean 'qkv_bias'? (valid: {})",
    ),
    Row(
        lambda: card_runs(card(tokens=5120), 0),
        "card echo: its budget of 5120 tokens is 10 steps, an eighth of which does "
        "not pass train.warmup_steps=2; change one of them",
    ),
]
