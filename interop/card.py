"""The README.md of an exported folder: training, rotation, and the comparison of logits."""

import re
from collections.abc import Mapping
from typing import Any

from experiment.config import ExperimentConfig
from experiment.run import RunDirectory
from interop.check import ROUNDINGS, Comparison
from model import rotary
from model.transformer import count_params

IDENTICAL = (
    "The tensors are byte for byte those that were imported, and config.json describes the same "
    "model, so logits were not computed."
)
_USAGE = """```python
from transformers import pipeline
generate = pipeline("text-generation", "THIS_FOLDER")
print(generate("import numpy", max_new_tokens=40)[0]["generated_text"])
```"""


def format_comparison(row: Comparison) -> str:
    """Return one line of text."""
    return (
        f"logits of {row.num_tokens} tokens: difference {row.difference:.1e}, allowed "
        f"{row.tolerance:.1e} (root mean squares; float32 rounding {row.rounding:.1e}, spread "
        f"{row.spread:.2g})"
    )


def make_readme(
    run: RunDirectory,
    step: int,
    config: ExperimentConfig,
    model_type: str,
    tokenizer_note: str,
    comparison: Comparison | None,
) -> str:
    """Return the README.md of an export, with the front matter of model hubs.

    Args:
      run: the run.
      step: step of the checkpoint.
      config: config in force at that step.
      model_type: entry of config.json.
      tokenizer_note: why there is no tokenizer; empty if there is one.
      comparison: of logits; None if the tensors are those that were imported.
    """
    origin = run.imported_run
    published = origin.record.get("imported", {}) if origin else {}
    base, license_name = published and _base_model(published), published.get("license")
    head = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    head |= {"base_model": base, "license": license_name}
    size = f"A `{model_type}` model with {count_params(config.model)['total']:,} parameters"
    if not published:
        text = f"{size}, trained with ropewalk. Its question: {config.question}"
    else:
        done = "imported from" if "imported" in run.record else "trained further with ropewalk from"
        text = f"{size}, {done} `{base}`. The license of `{base}` holds for this model too."
    sections = [
        "\n".join(
            ["---", *(f"{k}: {v}" for k, v in head.items() if v), "tags:", "- ropewalk", "---"]
        ),
        f"# {run.name}",
        text,
        tokenizer_note or _USAGE,
        f"## Training\n\n{_training(run, step, config)}",
        f"## Comparison of logits\n\n{_describe_comparison(comparison)}",
    ]
    return "\n\n".join(sections) + "\n"


def _base_model(published: Mapping[str, Any]) -> str:
    """Return the name of a published model on its hub, or of its folder."""
    path = published["config"].get("_name_or_path")
    is_name = isinstance(path, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)
    return str(path if is_name else published["name"])


def _training(run: RunDirectory, step: int, config: ExperimentConfig) -> str:
    data, train = config.data, config.train
    if imported := run.record.get("imported"):
        lines = [f"- imported from `{imported['name']}`, not trained here"]
    else:
        lines = []
        for stage in run.positions_at(step):
            window = f", window {stage['window']}" if stage.get("window") else ""
            lines.append(
                f"- {stage['num_steps']:,} steps, {stage['context_length']:,} tokens of context, "
                f"rotary `{stage['rotary']}`{window}"
            )
        lines += [
            f"- data: `{data.source}`, {data.batch_size} rows per step, seed {data.seed}",
            f"- AdamW, peak learning rate {train.learning_rate:g}, schedule {train.schedule}, "
            f"seed {config.seed}",
        ]
    lines.append(f"- rotary variant: `{rotary.label(config.model.rotary)}`")
    if commands := run.read_commands():
        lines += ["", "```", *commands, "```"]
    return "\n".join(lines)


def _describe_comparison(row: Comparison | None) -> str:
    if row is None:
        return IDENTICAL
    program = "transformers" if row.rounding else "the folder as ropewalk imports it"
    return (
        f"Float32 logits of the run and of {program}, computed from these files for random token "
        f"ids. A difference of {ROUNDINGS} times the rounding of float32 is allowed, within 2e-6 "
        f"and 1e-3 of the spread.\n\n{format_comparison(row)}"
    )
