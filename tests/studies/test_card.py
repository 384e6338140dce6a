"""A card makes the configs of its members."""

import dataclasses
from typing import Any

from configs import find_config
from configs.changes import change
from model.rotary.rope import Rope
from studies.card import Card, Member

WSD = change(find_config("tiny"), train=dict(schedule="wsd", warmup_steps=2))
BASES = Member(name="ten", overrides=("model.rotary.base=10",)), Member(name="b1e4")


def card(**changes) -> Card:
    fields: dict[str, Any] = dict(question="?", shared=WSD, members=BASES, tokens=10_000)
    return Card(name="echo", **(fields | changes))


def test_members_share_all_but_their_overrides():
    data = WSD.data
    num_steps = -(-10_000 // (data.batch_size * data.context_length))
    ten, other = card().configs().values()
    assert ten.train.num_steps == other.train.num_steps == num_steps
    assert ten.model.rotary == Rope(base=10)
    assert other.model.rotary == WSD.model.rotary
    assert dataclasses.replace(ten, model=other.model) == other


def test_without_a_budget_a_member_has_the_configs_own_steps():
    assert card(tokens=None).configs()["ten"].train == WSD.train
