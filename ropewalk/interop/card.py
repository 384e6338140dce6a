"""The README.md of an exported folder: training, losses, results, and what was compared."""

import contextlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from ropewalk.evals import rows
from ropewalk.evals.estimate.effective_context import estimate
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.items import metrics_damage
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary
from ropewalk.model.transformer import count_params
from ropewalk.utils.messages import print_note

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
      **notes: `tokenizer_note`, why there is no tokenizer (empty if there is one), `comparison`,
        what was compared, and `hub`, the name on a model hub (empty: the run's name).
    """
    environment = jinja2.Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["strip"] = _without_folders
    published = run.published_path
    licenses = [path.name for path in (published.glob("LICENSE*") if published else ())]
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        run=run,
        config=config,
        model_type=model_type,
        base=_base_model(run.origin) if run.origin else "",
        imported=run.record.get("imported"),
        num_params=count_params(config.model)["total"],
        stages=[{"window": None, **stage} for stage in run.positions_at(step)],
        rotary=rotary.label(config.model.rotary),
        commands=[
            shlex.join(map(_without_folders, shlex.split(line))) for line in run.read_commands()
        ],
        license=min(licenses, default=""),
        losses=_last_losses(run, step),
        results=_results(run, step),
        **notes,
    )


# The folders of a path that begins at the root, at home, or outside of the current folder.
_FOLDERS = re.compile(r"""(?<![\w:/])(?:~|\.\.?)?/(?:[^/'",=]+/)*(?=[^/\s])""")


def _without_folders(text: Any) -> str:
    """Return an expression or an argument with the last part only of each local path."""
    return _FOLDERS.sub("", str(text))


def _last_losses(run: RunDirectory, step: int) -> dict[str, Any]:
    """Return the last row of metrics.jsonl up to a step with each kind of loss, by its name."""
    if damage := metrics_damage(run):
        print_note(None, damage)
    logged = [row for row in run.read_metrics() if row["step"] <= step]
    names = ("loss", "val_loss")
    return {name: row for name in names for row in logged if row.get(name) is not None}


def _results(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    """Return the means of each evaluation of a step."""
    table = rows.select(rows.read_run(run), step=step)
    keys = list(zip(*(table[name].tolist() for name in _KEYS), strict=True))
    results = []
    for key in sorted(set(keys)):
        named = dict(zip(_KEYS, key, strict=True))
        group = rows.select(table, **named)
        means = {name: np.mean(group[name]) for name in ("exact_match", "nll")}
        l50 = ""
        with contextlib.suppress(ValueError):  # of a task without distances, or in a user's file
            l50 = str(estimate(group))
        results.append({**named, "answers": len(group["nll"]), **means, "l50": l50})
    return results


_KEYS = ("task", "length", "rotary")


def _base_model(published: Mapping[str, Any]) -> str:
    """Return the name of a published model on its hub, or of its folder."""
    path = published["config"].get("_name_or_path")
    is_name = isinstance(path, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path)
    return str(path if is_name else published["name"])
