"""Cards are configs, by name; what cannot be run is refused."""

import dataclasses
from typing import Any

import configs
import studies
from configs import find_config
from configs.changes import change
from experiment import overrides
from model.rotary.rope import Rope
from studies.card import Card, Member

WSD = change(find_config("tiny"), train=dict(schedule="wsd", warmup_steps=2))
BASES = Member(name="ten", overrides=("model.rotary.base=10",)), Member(name="b1e4")


def card(**changes) -> Card:
    given: dict[str, Any] = dict(question="?", shared=WSD, members=BASES, tokens=10_000)
    return Card(name="echo", **(given | changes))


def test_a_card_is_what_its_members_overrides_make():
    given = card()
    data = WSD.data
    num_steps = -(-10_000 // (data.batch_size * data.context_length))
    assert given.config.train.num_steps == num_steps
    ten, other = given.configs().values()
    assert ten.model.rotary == Rope(base=10)
    assert other.model.rotary == WSD.model.rotary
    assert dataclasses.replace(ten, model=other.model) == other
    # As `sweep.py` and `train.py` make them.
    common = dataclasses.replace(given.config, members=())
    assert [overrides.apply(common, own) for own in given.config.members] == [ten, other]
    lone = card(members=BASES[:1])
    assert lone.config == lone.configs()["ten"] and not lone.config.members


def test_without_a_budget_the_config_has_its_own_steps():
    assert card(tokens=None).config.train == WSD.train


def test_every_card_of_every_study_is_a_config_by_its_name():
    found = configs.load_configs()
    for study in studies.names():
        for name, each in studies.load_cards(study).items():
            assert found[name] == each.config
            assert len(each.configs()) == len(each.members)
