"""Forecasts of a study: made and kept before anything of it is run."""

import json
from pathlib import Path
from typing import Any

from studies import folder
from studies.queue import Job


def path_of(study: str) -> Path:
    """Where the forecasts of a study lie."""
    return folder(study) / "forecasts.json"


def read(study: str) -> dict[str, Any]:
    """By card and member; none where none were made.

    Raises:
      ValueError: if the file is damaged.
    """
    path = path_of(study)
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error.msg}); restore it") from error


def check(job: Job) -> None:
    """Raises ValueError if a run of the job would come before its forecast."""
