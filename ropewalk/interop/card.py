"""The README.md of an exported folder: training, rotation, and what was compared."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary
from ropewalk.model.transformer import count_params

IDENTICAL = (
    "The tensors are byte for byte those that were imported, and config.json describes the same "
    "model, so logits were not computed."
)
READ_BACK = (
    "An import of the folder has the run's configuration and parameters. Logits were not compared "
    "with transformers: {reason}."
)
_TEMPLATE = Path(__file__).with_name("card.md.j2")


def make_readme(
    run: RunDirectory, step: int, config: ExperimentConfig, model_type: str, **notes: str
) -> str:
    """Return the README.md of an export, with the front matter of model hubs.

    Args:
      run: the run.
      step: step of the checkpoint.
      config: config in force at that step.
      model_type: entry of config.json.
      **notes: `tokenizer_note`, why there is no tokenizer (empty if there is one), and
        `comparison`, what was compared.
    """
    template = jinja2.Template(
        _TEMPLATE.read_text(encoding="utf-8"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return template.render(
        run=run,
        config=config,
        model_type=model_type,
        base=_base_model(run.origin) if run.origin else "",
        imported=run.record.get("imported"),
        num_params=count_params(config.model)["total"],
        stages=[{"window": None, **stage} for stage in run.positions_at(step)],
        rotary=rotary.label(config.model.rotary),
        commands=run.read_commands(),
        **notes,
    )


def _base_model(published: Mapping[str, Any]) -> str:
    """Return the name of a published model on its hub, or of its folder."""
    path = published["config"].get("_name_or_path")
    is_name = isinstance(path, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)
    return str(path if is_name else published["name"])
