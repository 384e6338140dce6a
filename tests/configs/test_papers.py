"""The cards of papers: three scales each, whose members, stages, commands and costs are right."""

import fnmatch
import importlib
import pkgutil
import re
import shlex

import pytest

import evals
import studies.papers
from configs import find_config
from experiment import overrides
from experiment.checkpoint import shape_difference
from experiment.config import ExperimentConfig
from experiment.mesh import mesh_sizes
from experiment.metrics import flops_per_token
from experiment.overrides import make_members
from experiment.stages import split
from model import rotary
from model.transformer import abstract_params
from settings.expressions import split_commas
from studies.card import Card
from training.sweep import shared_part

# Of published weights, at their own scale alone.
IMPORTED = ("figure6_llama2_7b", "gradient_llama3_8b")
CARDS = [
    name
    for _, name, _ in pkgutil.iter_modules(studies.papers.__path__)
    if name != "scales"  # what the cards start from
    and name not in IMPORTED
]
SCALES = ("cpu", "gpu", "paper")


def doc(name: str) -> str:
    return importlib.import_module(f"studies.papers.{name}").__doc__ or ""


def cards(name: str) -> list[Card]:
    return importlib.import_module(f"studies.papers.{name}").cards


def flops(config: ExperimentConfig) -> float:
    """Of all members, and of the run they start from where it is the config's own."""

    def one(config: ExperimentConfig) -> float:
        return sum(
            (stage.end - stage.start)
            * stage.config.data.batch_size
            * stage.config.data.context_length
            * flops_per_token(stage.config)
            for stage in split(config)
        )

    if not config.members:
        return one(config)
    members = [member for _, _, member in make_members(config, [])]
    own_parent = any((m.start_from or "").startswith(f"runs/{config.name}/") for m in members)
    return own_parent * one(config) + sum(map(one, members))


def commands(name: str) -> list[list[str]]:
    """The command lines of a card, split into words."""
    text = doc(name).replace("\\\n", "")
    return [shlex.split(line) for line in re.findall(r"^    (python .*)$", text, re.MULTILINE)]


def test_every_experiment_has_a_card():
    assert CARDS == [
        "figure3_superficial",
        "figure6_finetune_bases",
        "figure7_pretrain",
        "gradient_curriculum",
        "mla",
        "partial_rotation",
        "su_table1",
        "table4_methods",
        "yarn_sliding_window",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_three_scales_that_train(name):
    assert [card.name for card in cards(name)] == [f"{name}_{scale}" for scale in SCALES]
    for heading in ("Question", "Commands", "Cost", "Confirms"):
        assert len(re.findall(rf"^{heading}: ", doc(name), re.MULTILINE)) == 1, heading
    for card in cards(name):
        assert card.source and card.refuted_if
        config = card.config
        members = [(config.name, config)]
        if config.members:
            members += [(n, member) for n, _, member in make_members(config, [])]
        shapes = abstract_params(config.model)
        for member_name, member in members:
            assert member_name
            for stage in split(member):
                # What continues a run, or a stage, has the parameters of what it continues.
                assert not shape_difference(abstract_params(stage.config.model), shapes)
                for task in stage.config.evals.tasks:
                    evals.parse(task)
        groups = {shared_part(member) for _, member in members[1:]}
        assert len(groups) <= 1, "members of one card train in one program"


@pytest.mark.slow
@pytest.mark.parametrize("name", CARDS)
def test_a_card_states_what_its_scales_cost(name):
    stated = re.findall(r"([\d.]+e\d+) FLOP", doc(name))
    assert len(stated) == 3
    for text, card in zip(stated, cards(name), strict=True):
        assert float(text) == pytest.approx(flops(card.config), rel=0.06), card.name


@pytest.mark.parametrize("name", CARDS)
def test_a_cards_commands_can_be_typed(name):
    """Scripts, configs, overrides, tasks, variants and steps exist; evaluated runs are trained."""
    found = commands(name)
    scripts = {words[1] for words in found}
    assert (
        {"evaluate.py", "report.py"}
        < scripts
        <= {"evaluate.py", "report.py", "train.py", "sweep.py"}
    )
    trained: dict[str, tuple[ExperimentConfig, dict[str, ExperimentConfig]]] = {}
    for _, script, *words in found:
        if script in ("train.py", "sweep.py"):
            config_name, workdir_flag, workdir, *given = words
            assert workdir_flag == "--workdir"
            config = overrides.apply(find_config(config_name), given)
            members = {}
            if script == "sweep.py":
                members = {n: member for n, _, member in make_members(config, given)}
            for member in [config, *members.values()]:
                split(member)
                if script == "sweep.py" and member.start_from:  # trained above, to that step
                    parent, _, step = member.start_from.partition("@")
                    ends = [stage.end for stage in split(trained[parent][0])]
                    assert int(step or ends[-1]) in ends
            trained[workdir] = (config, members)
            continue
        paths = words[: _first_option(words)]
        for path in paths:
            sweep_path, _, member_name = path.rpartition("/")
            assert path in trained or member_name in trained[sweep_path][1], path
        options = dict(zip(words[len(paths) :: 2], words[len(paths) + 1 :: 2], strict=True))
        config = trained[paths[0]][0] if paths[0] in trained else None
        for option, value in options.items():
            if option == "--tasks":
                assert [evals.parse(task) for task in split_commas(value)]
            elif option == "--rotary":
                for text in split_commas(value):
                    if text.strip() != "trained":
                        given = {"base": 10.0, "original_context_length": 64}
                        rotary.parse_pattern(text, given)
            elif option == "--step":
                assert config is not None
                assert int(value) in [stage.end for stage in split(config)]
            elif option == "--step1":
                assert [float(base) for base in value.removeprefix("base=").split(",")]
            else:
                assert option == "--lengths" and [int(length) for length in value.split(",")]


@pytest.mark.parametrize("name", IMPORTED)
def test_published_weights_are_taken_in_and_trained_on(name):
    (card,) = cards(name)
    assert card.name == name and card.source and card.refuted_if
    for heading in ("Question", "Commands", "Memory", "Cost", "Confirms"):
        assert len(re.findall(rf"^{heading}: ", doc(name), re.MULTILINE)) == 1, heading
    (stated,) = re.findall(r"([\d.]+e\d+) FLOP", doc(name))
    config = card.config
    assert float(stated) == pytest.approx(flops(config), rel=0.06)
    (_, _, _, command, _, imported), *found = commands(name)
    assert command == "import" and config.start_from == imported
    assert str(config.data.tokenizer).startswith(f"{imported}/tokenizer.")
    trained = {}
    for _, script, *words in found:
        if script == "train.py":
            assert words[0] == name
            trained[words[2]] = overrides.apply(config, words[3:])
            for stage in split(trained[words[2]]):
                assert mesh_sizes(stage.config, 1, 64)
        elif script == "-m":
            assert words[1] in ("lm_eval", "export") and words[2] in trained
        else:
            assert script in ("evaluate.py", "report.py")
            paths = words[: _first_option(words)]
            assert all(fnmatch.filter(trained, path) for path in paths)
            options = words[_first_option(words) :]
            if "--step" in options:
                step = int(options[options.index("--step") + 1])
                assert step in [stage.end for stage in split(trained[words[0]])]
    bases = {run.model.rotary for run in trained.values()}
    assert len(bases) == max(1, len(config.members))


def _first_option(words: list[str]) -> int:
    return next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
