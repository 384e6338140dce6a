"""The papers' experiments: their members, stages and commands are right at all scales."""

import functools
import importlib
import pkgutil
import re
import shlex

import pytest

import ropewalk.configs.papers
from ropewalk import evals
from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.checkpoint import shape_difference
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.overrides import make_members
from ropewalk.experiment.stages import split
from ropewalk.model.transformer import abstract_params
from ropewalk.training.programs import shared_part
from ropewalk.utils.expressions import split_commas
from tests.in_process import call

# Experiments on published weights have only the papers' own scale.
IMPORTED = ("figure6_llama2_7b", "gradient_llama3_8b")
MODULES = {name for _, name, _ in pkgutil.iter_modules(ropewalk.configs.papers.__path__)}
PAPERS = sorted(MODULES - {"scales", *IMPORTED})
SCALES = ("cpu", "gpu", "paper")
shapes_of = functools.cache(abstract_params)


def doc(name: str) -> str:
    return importlib.import_module(f"ropewalk.configs.papers.{name}").__doc__ or ""


def load(name: str) -> list[ExperimentConfig]:
    return importlib.import_module(f"ropewalk.configs.papers.{name}").configs


def members_of(config: ExperimentConfig) -> list[ExperimentConfig]:
    return [member.config for member in make_members(config, [])] if config.members else []


def commands(name: str) -> list[list[str]]:
    """Return the command lines of a docstring, split into arguments."""
    text = doc(name).replace("\\\n", "")
    return [shlex.split(line) for line in re.findall(r"^    (ropewalk .*)$", text, re.MULTILINE)]


def split_options(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split the arguments of a command into paths and options."""
    first = next((i for i, text in enumerate(arguments) if text.startswith("--")), len(arguments))
    options = zip(arguments[first::2], arguments[first + 1 :: 2], strict=True)
    return arguments[:first], dict(options)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_each_scale_can_be_trained(name):
    """Stages and members have one shape, tasks exist, and members train in one program."""
    scales = load(name)
    assert [config.name for config in scales] == [f"{name}_{scale}" for scale in SCALES]
    for config in scales:
        members = members_of(config)
        for run in [config, *members]:
            shapes = shapes_of(run.model)
            for stage in split(run):
                assert not shape_difference(shapes_of(stage.config.model), shapes)
                for task in stage.config.evals.tasks:
                    evals.parse(task)
        programs = {"olmpool": 8, "model_size": 2}.get(name, 1)
        assert len(set(map(shared_part, members))) <= programs


@pytest.mark.parametrize("name", PAPERS)
def test_commands_can_be_typed(name):
    """Scripts, configs, overrides, tasks, variants and steps exist; evaluated runs are trained."""
    lines = commands(name)
    assert {"evaluate", "report"} < {line[1] for line in lines}
    trained: dict[str, ExperimentConfig] = {}
    for _, name, *arguments in lines:
        if name in ("train", "sweep"):
            config_name, workdir_flag, workdir, *changes = arguments
            assert workdir_flag == "--workdir"
            trained[workdir] = overrides.apply(find_config(config_name), changes)
            members = make_members(trained[workdir], changes) if name == "sweep" else []
            for member in members:
                trained[f"{workdir}/{member.name}"] = member.config
                if member.config.start_from:  # a run of an earlier command, at a stage's end
                    parent, _, step = member.config.start_from.partition("@")
                    ends = [stage.end for stage in split(trained[parent])]
                    assert int(step or ends[-1]) in ends
            continue
        if name == "probes":
            continue
        assert name in ("evaluate", "report")
        paths, options = split_options(arguments)
        assert trained.keys() >= set(paths)
        assert all(map(evals.parse, split_commas(options.get("--tasks", "kv"))))


@pytest.mark.parametrize("name", [*PAPERS, *IMPORTED])
def test_what_would_refute_is_evaluated_at_every_scale(name):
    """The tasks that a docstring names, with their scales, are those of its configs."""
    ((line,),) = [re.findall(r"^Measured by: ([^.]+)\.$", doc(name), re.MULTILINE)]
    measures = re.findall(r"([\w, ]+) \(([\w, ]+)\)", line)
    scales = {
        scale: re.split(", | and ", tasks) for tasks, of in measures for scale in of.split(", ")
    }
    for config in load(name):
        scale = config.name.rpartition("_")[2]
        evaluated = {task.partition("(")[0] for task in config.evals.tasks}
        assert evaluated >= {task.strip() for task in scales.pop(scale, scales.get("paper"))}
    assert not {*scales} - {"paper"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [*(f"{name}_paper" for name in PAPERS), *IMPORTED, "gradient_llama3_8b_4m", "lwm_llama3_8b"],
)
def test_the_papers_own_scale_is_planned_without_text_parents_or_chips(name, tmp_path):
    script = "sweep.py" if find_config(name).members else "train.py"
    check = "--workdir", tmp_path, "--check", "--devices", 8
    output = call(script, name, *check)
    assert "not on this machine, and not checked: data.path=none" in output
    for line in ("mesh: ", r"memory: about [\d.]+ [KMGT]iB on each of [1-8] ", "time: ", "disk: "):
        assert re.search(f"^(warning: )?{line}", output, flags=re.M), line


FINE_TUNED = "figure3_superficial", "figure6_finetune_bases", "figure6_llama2_7b", "table4_methods"


@pytest.mark.parametrize("name", ["figure7_pretrain", *FINE_TUNED])
def test_configs_of_men_et_al_evaluate_as_their_section_5(name):
    """LongEval's prompt (Figure 8), gkamradt's needle, and the test split of PG-19."""
    longeval, needle, pg19 = map(evals.parse, load(name)[-1].evals.tasks)
    assert longeval.template == "official"
    assert (needle.haystack, needle.cue) == ("text", "gkamradt")
    assert pg19.expression == "pg19"
