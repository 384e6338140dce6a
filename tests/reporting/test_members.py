import argparse
from types import SimpleNamespace

import pytest

from ropewalk.evals import rows as rows_lib
from ropewalk.experiment.run import RunDirectory
from ropewalk.probes import __main__ as probes_command
from ropewalk.reporting import members as members_lib
from ropewalk.reporting import tables
from tests.reporting.helpers import answers, diverge, experiment, make_run, read, row, rows_of


def test_equal_settings_are_one_member_in_any_directory(tmp_path):
    """Seeds in separate sweeps, with different logging and evaluation settings."""
    for length in (128, 256):
        for seed in (0, 1):
            others = dict(train=dict(log_every=1 + seed), evals=dict(documents=8 << seed))
            others |= dict(name=f"run {seed}", seed=seed)
            config = experiment("rope(base=10)", length=length, **others)
            make_run(tmp_path / f"{length} no. {seed}", config, answers(config, 20))
    paths = sorted(tmp_path.iterdir())
    members = read(*paths, paths[0])  # a run given twice is one
    assert [(m.label, m.trained_length, len(m.runs)) for m in members] == [
        ("context_length=128", 128, 2),
        ("context_length=256", 256, 2),
    ]
    assert [m.estimates["kv"].num_seeds for m in members] == [2, 2]


def test_runs_with_other_tokenizers_are_named(tmp_path):
    """Those of two machines differ, though the config and the text are the same."""
    runs = []
    for seed, digest in ((0, "ac"), (1, "51"), (2, "51")):
        run = RunDirectory(tmp_path / str(seed))
        run.write_config(experiment("rope(base=10)", seed=seed), (), digest)
        runs.append(run)
    lines: list[str] = []
    members_lib.read(runs[1:], lines.append)
    assert not lines
    members_lib.read(runs, lines.append)
    assert lines == [
        f"{tmp_path}/0 and {tmp_path}/2 have other tokenizers: compare their bits per byte, not "
        "losses per token"
    ]


def test_seeds_that_lack_the_step_of_the_others_are_named(tmp_path):
    runs = []
    for seed, steps in ((0, (5, 10)), (1, (5,)), (2, (10,))):
        config = experiment("rope(base=10)", seed=seed)
        rows = [part for step in steps for part in answers(config, 20, step=step)]
        rows += [row(config, "perplexity", step=10)]
        runs.append(make_run(tmp_path / str(seed), config, rows))
    lines: list[str] = []
    (member,) = members_lib.read(runs, lines.append)
    assert member.estimates["kv"].num_seeds == 2
    assert lines == [
        f"{tmp_path}/1: left out of kv, which other seeds have at step 10; evaluate all at one "
        "step (--step)"
    ]


def test_rows_of_another_member_are_refused(tmp_path):
    for base in (10, 30):
        config = experiment(f"rope(base={base})")
        make_run(tmp_path / f"base={base}", config, answers(config, 20, documents=16))
    first, second = (tmp_path / f"base={base}/results.jsonl" for base in (10, 30))
    first.write_bytes(second.read_bytes())
    with pytest.raises(ValueError, match=f"{first} holds rows of another run .*delete it and eval"):
        read(*sorted(tmp_path.iterdir()))


def test_diverged_runs_are_labeled_and_not_measured(tmp_path):
    nothing = {"nll": float("nan"), "exact_match": False, "first_token_correct": False}
    for base, seeds in ((10, {0}), (30, {1}), (100, {0, 1})):
        for seed in (0, 1):
            config = experiment(f"rope(base={base})", seed=seed)
            rows = [row(config, **nothing)] if seed in seeds else answers(config, 20)
            run = make_run(tmp_path / f"{base},{seed}", config, rows)
            if seed in seeds:
                diverge(run, since=8 + seed)
    members = read(*sorted(tmp_path.iterdir()))
    assert [member.label for member in members] == [
        "base=10 (1 of 2 seeds diverged)",
        "base=30 (1 of 2 seeds diverged)",
        "base=100 (diverged at step 8)",
    ]
    assert [m.estimates["kv"].num_seeds for m in members[:2]] == [1, 1]
    assert not members[2].measurements
    assert tables.number_tables(members)[0].lines[2][1][1] == "diverged at step 8"


def test_evaluated_stages_of_a_run_are_members(tmp_path, monkeypatch):
    """Ten updates at base 10 and 128 tokens, then ten at base 500 and 256; a checkpoint at 10."""
    stage = "model.rotary.base=500", "data.context_length=256"
    config = experiment("rope(base=10)", stages=(stage,))
    run = make_run(tmp_path, config)
    (member,) = read(tmp_path)
    assert (member.base, member.trained_length) == (10, 128)
    (run.checkpoints_path / "20").mkdir()
    rows = rows_of(run, answers(config, 20, documents=16))
    late = answers(config, 60, step=20, variant="rope(base=500)", documents=16, length=256)
    rows_lib.write(run.results_path, rows_lib.columns(rows + late))
    first, second = read(tmp_path)
    assert (first.base, first.trained_length, first.superseded) == (10, 128, True)
    assert (second.base, second.trained_length, second.superseded) == (500, 256, False)
    assert [len(member.losses) for member in (first, second)] == [0, 1]
    labels = ["base=10@10", "base=500@20"]
    assert [member.label for member in (first, second)] == labels
    assert [member.step for member in (first, second)] == [10, 20]
    (early,) = probes_command.select_steps([first, second], 5)
    assert (early.label, early.step, early.base) == ("base=10@5", 5, 10)
    assert load_probed(tmp_path, monkeypatch) == {"base=10@10": 10, "base=500@20": 20}
    for member, l50 in ((first, 19.5), (second, 59.5)):
        # Rows of the first stage under its variant are not a cell of a matrix.
        assert [m.variant for m in member.measurements] == ["trained"]
        assert member.estimates["kv"].l50 == pytest.approx(l50, abs=1)


def load_probed(path, monkeypatch) -> dict[str, int]:
    """Return the step of the checkpoint that `ropewalk probes` measures in each column."""
    columns = {}

    class Step(SimpleNamespace):
        """A run, a subject, and the measurements of a probe."""

        by_default, title = True, "step"
        name, measure, save = (
            (lambda: "step"),
            (lambda subject: subject.run),
            (lambda *_, **__: None),
        )

    def write(results, *_):
        columns.update({label: seeds[0].step for label, seeds in results[Step].items()})

    monkeypatch.setattr("ropewalk.experiment.load", lambda _, step: Step(step=step))
    monkeypatch.setattr("ropewalk.experiment.identity.run_id", lambda *_: "")
    monkeypatch.setattr("ropewalk.probes.subject.Subject", lambda **options: Step(**options))
    monkeypatch.setattr("ropewalk.probes.all_probes", lambda: {"step": Step})
    monkeypatch.setattr("ropewalk.probes.page.write", write)
    monkeypatch.setattr("ropewalk.probes.page.list_findings", lambda results: [])
    options = dict(probes=None, task="kv", documents=None, length=9, step=None, heads=False)
    arguments = argparse.Namespace(dirs=[str(path)], **options)
    probes_command.run_probes(arguments, path / "page.html", "")
    return columns
