"""WHAT is asked of a checkpoint: one task a file, found by walking this folder.

A task is a module with two functions:

  documents(config: ExperimentConfig, tokenizer, length, count) -> list[RetrievalDocument]
      Ids with questions in them, of validation data, no longer than length + 1 ids. ValueError
      if it cannot ask at this length or without this data; it says what would help.
  chance(tokenizer) -> float
      Exact matches of a guess.

Questions are scored by ids, teacher-forced, in one forward pass (`evals.score`), every answer
becomes a row of one schema (`evals.rows`), and effective context is estimated from rows alone
(`evals.effective_context`).
"""

import functools
import importlib
import pkgutil
from types import ModuleType


@functools.cache
def tasks() -> dict[str, ModuleType]:
    """Every task by its name, that of its file."""
    names = [module_info.name for module_info in pkgutil.iter_modules(__path__)]
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "documents")}
