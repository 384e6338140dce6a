"""The README.md of an exported folder: what was trained how, and what was compared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from experiment.config import ExperimentConfig
from experiment.run import RunDirectory
from interop.check import ROUNDINGS, Compared
from model import rotary
from model.transformer import count_params

IDENTICAL = (
    "The tensors are byte for byte those that were imported, and config.json describes the same "
    "model: logits were not computed."
)


class Described(NamedTuple):
    """The subject of a README.md.

    Attributes:
      run, step: the checkpoint.
      config: in force at that step.
      hf_config: the folder's config.json.
      tokenizer: what there is to say of it, if anything.
    """

    run: RunDirectory
    step: int
    config: ExperimentConfig
    hf_config: dict[str, Any]
    tokenizer: str


def compared_line(compared: Compared) -> str:
    """One row of the check, for people."""
    tokens = "" if compared.num_tokens == compared.length else f", {compared.num_tokens} of them"
    return (
        f"logits at {compared.length:,} tokens{tokens}: difference {compared.difference:.1e}, "
        f"allowed {compared.tolerance:.1e} (root mean squares; float32 rounding "
        f"{compared.rounding:.1e}, spread {compared.spread:.2g})"
    )


def readme(about: Described, compared: Sequence[Compared]) -> str:
    """The text, with the front matter that model hubs read."""
    config, kind = about.config, about.hf_config["model_type"]
    sections = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- ropewalk\n---",
        f"# {about.run.name}",
        f"A `{kind}` model of {count_params(config.model)['total']:,} parameters, trained with "
        f"ropewalk to ask: {config.question}",
        _use(about),
        f"## Training\n\n{_training(about)}",
        f"## Same logits\n\n{_check(compared)}",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _use(about: Described) -> str:
    if about.tokenizer:
        return about.tokenizer
    return (
        "```python\nfrom transformers import pipeline\n"
        'generate = pipeline("text-generation", "THIS_FOLDER")\n'
        'print(generate("import numpy", max_new_tokens=40)[0]["generated_text"])\n```'
    )


def _training(about: Described) -> str:
    lines = []
    for stage in about.run.positions_at(about.step):
        window = f", window {stage['window']}" if stage.get("window") else ""
        lines.append(
            f"- {stage['num_steps']:,} steps at {stage['context_length']:,} tokens of context, "
            f"rotary `{stage['rotary']}`{window}"
        )
    data, train = about.config.data, about.config.train
    imported = about.run.record.get("imported")
    if imported:
        lines = [f"- imported from `{imported['name']}`, and not trained here"]
    else:
        lines.append(f"- data: `{data.source}`, {data.batch_size} rows a step, seed {data.seed}")
        lines.append(
            f"- AdamW, peak learning rate {train.learning_rate:g}, schedule {train.schedule}, "
            f"seed {about.config.seed}"
        )
    lines.append(f"- rotation: `{rotary.label(about.config.model.rotary)}`")
    if commands := about.run.read_commands():
        lines += ["", "```", *commands, "```"]
    return "\n".join(lines)


def _check(compared: Sequence[Compared]) -> str:
    if not compared:
        return IDENTICAL
    by = "transformers" if compared[0].plain is not None else "transformers' functions in numpy"
    lines = [
        f"Float32 logits of the run and of {by} from these files, on random ids, as root mean "
        f"squares. Allowed are {ROUNDINGS} times the rounding of float32 (within 2e-6 and 1e-3 of "
        "the spread).",
        "",
        "| context | tokens | difference | allowed | rounding | with transformers' float32 angles "
        "| spread |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in compared:
        plain = "–" if row.plain is None else f"{row.plain:.1e}"
        lines.append(
            f"| {row.length:,} | {row.num_tokens:,} | {row.difference:.1e} | "
            f"{row.tolerance:.1e} | {row.rounding:.1e} | {plain} | {row.spread:.2g} |"
        )
    return "\n".join(lines)
