"""Stages against hand-made steps, rows and tokens; what the run directory says of each."""

import dataclasses

from ropewalk.configs import find_config
from ropewalk.experiment import stages
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary
from tests.experiment.test_inherit import make_parent

STAGES = (
    ("model.rotary.base=100", "train.num_steps=10", "train.warmup_steps=1"),
    ("data.context_length=32", "data.batch_size=4", "train.learning_rate=1e-4"),
    ("model.rotary=nope", "data.num_workers=3"),
)

TINY = find_config("tiny")  # 20 steps of 8 rows of 64 tokens at base 10000

STAGED = dataclasses.replace(TINY, stages=STAGES)


def test_stages_pile_up():
    every = stages.split(STAGED)
    two, three = every[2:]
    assert [(s.start, s.end) for s in every] == [(0, 20), (20, 30), (30, 40), (40, 50)]
    # Stage 1 has the data of stage 0 and reads on; stage 2 has other rows; how rows are made
    # (workers) does not matter to stage 3.
    assert [s.rows_from for s in every] == [0, 0, 30, 30]
    assert [s.tokens_before for s in every] == [0, 10240, 15360, 16640]
    assert rotary.expression(two.config.model.rotary) == "rope(base=100)"
    assert two.config.train.learning_rate == 1e-4 and two.config.train.warmup_steps == 1
    assert three.config.data.context_length == 32
    assert all(s.config.stages == () for s in every)


def test_a_run_directory_knows_each_step(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_config(STAGED, [])
    zero, one, two, three = (stage.config for stage in stages.split(STAGED))
    for step, config in ((0, zero), (1, zero), (20, zero), (21, one), (30, one), (31, two)):
        assert run.config_at(step) == config
    assert run.config_at(50) == three
    assert run.config.stages == STAGES
    plain = {"num_steps": 20, "context_length": 64, "rotary": "rope(base=10000)", "window": None}
    assert run.positions_at(20) == [plain]
    assert run.positions_at(33) == [
        plain,
        {"num_steps": 10, "context_length": 64, "rotary": "rope(base=100)", "window": None},
        {"num_steps": 3, "context_length": 32, "rotary": "rope(base=100)", "window": None},
    ]


def test_positions_of_all_ancestors_are_the_childs(tmp_path):
    first = make_parent(tmp_path / "a", steps=(10, 20))
    changes = f"start_from={first.path}@10", "model.rotary=nope", "model.window=8"
    second = make_parent(tmp_path / "b", *changes, steps=(5,))
    third = make_parent(tmp_path / "c", f"start_from={second.path}")
    positions = [(p["rotary"], p["num_steps"], p["window"]) for p in third.positions_at(7)]
    rope = "rope(base=10000)"
    assert positions == [(rope, 10, None), ("nope", 5, 8), (rope, 7, None)]
