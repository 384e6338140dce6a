"""The command line's small language: typed overrides, sweeps, and errors that name the fix."""

import dataclasses

import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.model import rotary
from ropewalk.utils.plugins import allow
from tests.models import tiny_config
from tests.test_own_variant import BENT

TINY = find_config("tiny")


def test_a_seed_is_the_rows_too_unless_their_own_is_given():
    def seeds(*changes):
        config = overrides.apply(TINY, changes)
        return config.seed, config.data.seed

    assert seeds("data.batch_size=4", "seed=3") == (3, 3)
    assert seeds("seed=3", "data.seed=0") == seeds("data.seed=0", "seed=3") == (3, 0)
    assert seeds("data.seed=2") == (0, 2) and seeds("train.num_steps=5") == (0, 0)
    # A member's own seed and one for all: the last one counts, for both.
    assert seeds("seed=3", "seed=4") == (4, 4)


def test_a_field_that_is_given_twice_is_named():
    lines = overrides.describe_replaced(["seed=0", "data.seed=1", "seed=2,3", "data.seed=1"])
    assert lines == ["seed=0 is replaced by seed=2,3"]


def test_objects_lists_and_optional_values():
    config = overrides.apply(
        TINY,
        [
            "model.rotary=ntk_aware(base=1e4, factor=8)", "model.rotary.factor=4",
            "model.window=32", "evals.tasks=[kv,lines]", "evals.lengths=128,256",
            "model.tie_embeddings=false", "train.num_steps=1e3", "train.learning_rate=1",
        ],
    )  # fmt: skip
    assert config.model.rotary == rotary.parse("ntk_aware(base=10000.0,factor=4.0)")
    assert (config.model.window, config.model.tie_embeddings) == (32, False)
    assert (config.evals.tasks, config.evals.lengths) == (("kv", "lines"), (128, 256))
    # As JSON, 1 is another number than 1.0.
    assert (repr(config.train.num_steps), repr(config.train.learning_rate)) == ("1000", "1.0")
    assert config.data == TINY.data
    assert overrides.apply(config, ["model.window=none"]).model.window is None
    assert overrides.apply(config, ["evals.lengths=[]"]).evals.lengths == ()
    assert overrides.apply(config, ["stages=[[seed=1],[]]"]).stages == (("seed=1",), ())


def test_a_grid_is_every_combination_named_by_what_varies():
    members = overrides.grid(["model.rotary.base=10,1e4", "seed=0,1", "train.num_steps=5"])
    names = "base=10,seed=0 base=10,seed=1 base=1e4,seed=0 base=1e4,seed=1"
    assert [name for name, _ in members] == names.split()
    assert members[1][1] == ["model.rotary.base=10", "seed=1", "train.num_steps=5"]
    two_seeds = [name for name, _ in overrides.grid(["seed=0,1", "data.seed=2,3"])]
    assert two_seeds[:2] == ["seed=0,data.seed=2", "seed=0,data.seed=3"]
    # Commas inside brackets do not split; those of variants: tests/tpu/test_jobset.py.
    texts = "[kv,lines]", "pg19(path='a(b'),kv"
    assert [len(overrides.grid([f"data.retrieval_tasks={text}"])) for text in texts] == [1, 2]


def test_commas_in_values(tmp_path, monkeypatch):
    """Members' own directories are named so: quotes, a backslash or an existing path keep them."""
    monkeypatch.chdir(tmp_path)
    for name in ("base=10,num_heads=4", "base=30,num_heads=4"):
        (tmp_path / name).mkdir()

    def values(text: str) -> list[str | None]:
        members = overrides.grid([f"start_from={text}"])
        return [tiny_config(*member).start_from for _, member in members]

    ten, thirty = "base=10,num_heads=4", "base=30,num_heads=4"
    assert values(ten) == values(f"'{ten}'") == values(ten.replace(",", "\\,")) == [ten]
    assert values(f"{ten}@5,{thirty}") == [f"{ten}@5", thirty]
    assert values('a,"b,c",d') == ["a", "b,c", "d"]
    assert values("it's,that's") == ["it's", "that's"]


def test_a_field_for_all_members():
    members = (("model.rotary.base=10",), ("model.rotary=nope", "model.num_heads=1"))
    config = dataclasses.replace(TINY, members=members)
    made = overrides.make_members(config, ["model.rotary.log_n=train", "train.num_steps=7"])
    assert [m.config.train.num_steps for m in made] == [7, 7]
    assert {m.config.model.rotary.log_n for m in made} == {"train"}
    for override in ("model.rotary.base=20", "model.rotary=rope(base=20)", "model.num_heads=2"):
        with pytest.raises(ValueError, match="list values of your own"):
            overrides.make_members(config, [override])
    with pytest.raises(ValueError, match="nope has no base; ") as error:
        overrides.apply(TINY, ["model.rotary=nope", "model.rotary.base=20"])
    assert "did you mean 'model.rotary.base'" not in str(error.value)


def test_a_sweep_is_continued_whatever_the_order_of_its_fields(tmp_path):
    fields = ["model.rotary.base=10,20", "train.num_steps=3", "train.warmup_steps=0"]
    record = overrides.make_sweep(TINY, tmp_path, fields).record
    (tmp_path / "sweep.json").write_text(record.to_json())
    overrides.make_sweep(TINY, tmp_path, fields[::-1]).check_workdir()
    with pytest.raises(ValueError, match="holds another sweep"):
        overrides.make_sweep(TINY, tmp_path, [*fields[::-1], "data.seed=1"]).check_workdir()


LOG = "train.learning_rate=log(1e-4,1e-2)"


def drawn(number: int, *changes: str, seed: int = 0) -> list[dict[str, str]]:
    """The varying values of the members of a random search."""
    sweep = overrides.make_sweep(TINY, "runs/x", changes, number=number, draw_seed=seed)
    assert [m.name for m in sweep.members] == list(sweep.record.members)
    return [dict(part.split("=") for part in member.name.split(",")) for member in sweep.members]


def test_a_random_search_draws_the_same_again_and_more():
    rates = [float(member["learning_rate"]) for member in drawn(400, LOG)]
    # Half of the values lie below the geometric middle, a quarter below 10^-3.5.
    assert 1e-4 <= min(rates) < 1.05e-4 and 0.95e-2 < max(rates) <= 1e-2
    shares = [np.mean(np.array(rates) < 10**power) for power in (-3.5, -3, -2.5)]
    assert shares == pytest.approx([0.25, 0.5, 0.75], abs=0.07)
    few = drawn(3, LOG)
    assert [float(member["learning_rate"]) for member in few] == rates[:3]
    assert drawn(3, LOG, seed=1) != few
    both = drawn(3, "train.weight_decay=uniform(0,0.5)", LOG)
    assert [member["learning_rate"] for member in both] == [m["learning_rate"] for m in few]
    layers = [member["num_layers"] for member in drawn(4, "model.num_layers=uniform(1,4)")]
    assert sorted(layers) == ["1", "2", "3", "4"]  # both ends, whole, each once


def test_each_member_of_a_grid_gets_the_same_draws():
    members = drawn(2, LOG, "model.rotary.base=10,1e4", "train.num_steps=4")
    assert [member["base"] for member in members] == ["10", "10", "1e4", "1e4"]
    rates = [member["learning_rate"] for member in members]
    assert rates[:2] == rates[2:] and rates[0] != rates[1]


def test_members_of_own_classes_are_named_without_their_files(tmp_path):
    paths = [tmp_path / name for name in ("a.py", "b.py")]
    for path in paths:
        path.write_text(BENT)
        allow(path)
    bent = f"{paths[0]}:Bent(strength=2)"
    rotary = f"model.rotary={bent},[{bent},nope],[[{bent},nope]]"
    members = overrides.make_members(TINY, [rotary, "model.num_kv_heads=2"])
    names = [f"rotary={x}" for x in ("Bent(strength=2)", "Bent(strength=2)+nope")]
    assert [m.name for m in members] == [*names, "rotary=(Bent(strength=2)+nope)"]
    with pytest.raises(ValueError, match="two members would be called"):
        overrides.make_members(
            TINY, [f"model.rotary={','.join(f'{x}:Bent(strength=2)' for x in paths)}"]
        )
