import dataclasses

import pytest

from experiment.run import find_runs
from reporting import commands
from reporting import members as members_lib
from tests.reporting.helpers import experiment, make_run, make_sweep, row


def evaluated(*paths) -> list[str]:
    """The commands, without the folder that all paths lie in."""
    lines = commands.evaluate(members_lib.read(find_runs(paths)), paths)
    return [line.replace(f"{paths[0].parent}/", "") for line in lines]


def rows(config, *tasks, documents=64, **columns):
    numbers = range(documents)
    return [row(config, task, document=n, **columns) for task in tasks for n in numbers]


def with_evals(config, **changes):
    return dataclasses.replace(config, evals=dataclasses.replace(config.evals, **changes))


def test_what_the_config_asks_for_needs_no_flags(tmp_path):
    config = with_evals(experiment("rope(base=10)"), tasks=("kv", "lines"))
    make_run(tmp_path / "run", config, rows(config, "lines", "kv"))
    assert evaluated(tmp_path / "run") == ["python evaluate.py run"]


def test_lengths_tasks_documents_and_steps_are_said_where_they_differ(tmp_path):
    config = with_evals(experiment("rope(base=10)"), tasks=("kv", "lines"), lengths=(64, 128))
    asked = [r for n in (64, 128) for r in rows(config, "kv", "lines", length=n)]
    asked += rows(config, "needle(keys=2)", "vt", length=512)
    asked += rows(config, "kv", length=512, documents=8)
    asked += rows(config, "kv", step=5, length=64) + rows(config, "kv", step=5, length=128)
    make_run(tmp_path / "run", config, asked)
    assert evaluated(tmp_path / "run") == [
        "python evaluate.py run --tasks kv --step 5,10",
        "python evaluate.py run --tasks lines",
        "python evaluate.py run --tasks 'needle(keys=2),vt' --lengths 512",
        "python evaluate.py run --tasks kv --lengths 512 --documents 8",
    ]


def test_a_schedule_that_a_member_cannot_take_is_asked_of_the_sweep_all_the_same(tmp_path):
    folder = make_sweep(tmp_path / "sweep", ["base=10", "rotary=nope"])
    ten, nope = (with_evals(experiment(text), tasks=("kv",)) for text in ("rope(base=10)", "nope"))
    yarn = "dynamic_yarn(base=10,original_context_length=128)"
    make_run(folder / "base=10", ten, rows(ten, "kv") + rows(ten, "kv", rotary=yarn))
    run = make_run(folder / "rotary=nope", nope, rows(nope, "kv"))
    assert evaluated(folder) == ["python evaluate.py sweep --rotary trained,dynamic_yarn"]
    # A schedule that it can take, it was not asked.
    run.results_path.unlink()
    (folder / "rotary=nope" / "results.jsonl").touch()
    assert evaluated(folder) == [
        "python evaluate.py sweep/base=10",
        "python evaluate.py sweep --rotary dynamic_yarn",
    ]


def test_first_losses_are_asked_with_step1(tmp_path):
    """2^18 tokens of training rows, unless --documents says otherwise: 2048 rows of 128."""
    folder = make_sweep(tmp_path / "sweep", ["base=10", "base=500"])
    for base in (10, 500):
        config = experiment(f"rope(base={base})")
        asked = [
            row(config, "step1", rotary=f"rope(base={other})", length=256, document=document)
            for other in dict.fromkeys((base, 1000, 500))
            for document in range(1024)
        ]
        make_run(folder / f"base={base}", config, asked)
    assert evaluated(folder) == ["python evaluate.py sweep --step1 base=500,1000 --lengths 256"]


@pytest.mark.parametrize(
    ("of_text", "of_kv", "flags"),
    [(9, 64, ""), (9, 9, " --documents 9"), (70, 64, None)],
)
def test_text_of_which_there_is_no_more_is_asked_for_as_usual(tmp_path, of_text, of_kv, flags):
    config = with_evals(experiment("rope(base=10)"), tasks=("kv", "perplexity"))
    asked = rows(config, "kv", documents=of_kv) + rows(config, "perplexity", documents=of_text)
    make_run(tmp_path / "run", config, asked)
    expected = [f"python evaluate.py run{flags}"]
    if flags is None:
        expected = [
            "python evaluate.py run --tasks kv",
            "python evaluate.py run --tasks perplexity --documents 70",
        ]
    assert evaluated(tmp_path / "run") == expected


def test_stages_that_were_all_evaluated_are_asked_for_by_that_name(tmp_path):
    stage = "model.rotary.base=500", "data.context_length=256"
    config = dataclasses.replace(experiment("rope(base=10)"), stages=(stage,))
    config = with_evals(config, tasks=("kv",))
    first = rows(config, "kv", step=10)
    last = rows(config, "kv", step=20, rotary="rope(base=500)", length=256)
    run = make_run(tmp_path / "run", config, first + last)
    (run.checkpoints_path / "20").mkdir()
    assert evaluated(tmp_path / "run") == ["python evaluate.py run --step stages"]


def test_paths_in_expressions_keep_their_quotes():
    line = commands.command("evaluate.py", "a b", "--tasks", "pg19(path='x/y')")
    assert line == """python evaluate.py 'a b' --tasks "pg19(path='x/y')\""""
