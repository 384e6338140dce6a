import json

import pytest

from ropewalk.experiment.run import find_runs
from ropewalk.reporting import commands
from ropewalk.utils.command_line import requote
from tests.reporting.helpers import answers, experiment, make_run, make_sweep

REPORT = "ropewalk report out"


def test_recorded_commands_are_repeated_once_training_first(tmp_path):
    folder = make_sweep(tmp_path / "sweep", ["base=10", "base=30"])
    trained = f"python /some/where/sweep.py tiny --workdir {folder} model.rotary.base=10,30"
    longer = f"{trained} train.num_steps=20"
    for base in (10, 30):
        config = experiment(f"rope(base={base})")
        run = make_run(folder / f"base={base}", config, answers(config, 20, documents=16))
        for line in (trained, f"python evaluate.py {folder} --tasks kv", longer, trained):
            run.record_command(line)
    run.record_command(f"python evaluate.py {folder}/base=30 --lengths 64")
    assert commands.repeat({folder: find_runs([folder])}, REPORT) == [
        f"ropewalk sweep tiny --workdir {folder} model.rotary.base=10,30",
        f"ropewalk sweep tiny --workdir {folder} model.rotary.base=10,30 train.num_steps=20",
        f"ropewalk evaluate {folder} --tasks kv",
        f"ropewalk evaluate {folder}/base=30 --lengths 64",
        REPORT,
    ]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("ropewalk train 'a b;rm -rf ~' ", "ropewalk train 'a b;rm -rf ~'"),
        ("python train.py 'a b;rm -rf ~' ", "ropewalk train 'a b;rm -rf ~'"),
        ("python evaluate.py $(id) > b", "ropewalk evaluate '$(id)' '>' b"),
        ("python -m experiment keep a", "ropewalk runs keep a"),
        ("python /x/studies/__main__.py run a", "ropewalk studies run a"),
        ("python -m ropewalk train a", "ropewalk train a"),
        ("python -m ropewalk", ""),
        ("ropewalk '$(id)'", ""),
        ("python -c 'import os'", ""),
        ("python evil.py", ""),
        ("python train.py 'unclosed", ""),
        ("python train.py a\nrm b", ""),
        ("python train.py 'a```\u200b'", ""),
    ],
)
def test_a_line_of_a_file_is_quoted_again_or_omitted(line, expected):
    assert requote(line) == expected


def test_runs_without_recorded_commands_are_trained_from_their_config(tmp_path):
    config = experiment("rope(base=10)")
    run = make_run(tmp_path / "run", config, answers(config, 20), overrides=["seed=3"])
    sweep = make_sweep(tmp_path / "sweep", ["base=10"])
    make_run(sweep / "base=10", config)
    assert commands.repeat({run.path: [run], sweep: find_runs([sweep])}, REPORT) == [
        f"ropewalk train tiny --workdir {run.path} seed=3",
        f"ropewalk sweep tiny --workdir {sweep} model.rotary.base=10,30,100,1e4",
        f"ropewalk evaluate {run.path}",
        REPORT,
    ]


def test_no_command_names_a_config_that_does_not_exist(tmp_path):
    """An import, or a config from a user's file, has a name that is no config's."""
    run = make_run(tmp_path / "run", experiment("rope(base=10)", name="SmolLM-135M"))
    note, evaluate, _ = commands.repeat({run.path: [run]}, REPORT)
    assert note.startswith("# ") and str(run.path / "config.json") in note
    assert evaluate == f"ropewalk evaluate {run.path}"
    sweep = make_sweep(tmp_path / "sweep", ["base=10"])
    record = {"members": ["base=10"], "overrides": ["seed=0,1"], "config": "gone"}
    (sweep / "sweep.json").write_text(json.dumps(record))
    make_run(sweep / "base=10", experiment("rope(base=10)"))
    assert commands.repeat({sweep: find_runs([sweep])}, REPORT)[0].startswith("# ")
