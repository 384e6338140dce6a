"""Options of an evaluation, checked before JAX is imported."""

import dataclasses
from collections.abc import Sequence

import evals
from data.config import MAX_CONTEXT
from experiment.config import TRAINED, NumDocuments
from settings.checks import Positive, check
from settings.expressions import split_commas


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to ask.

    Attributes:
      tasks: expressions, `needle(haystack=noise)`, less those whose text is not to be had here;
        None: the config's, less those that cannot be asked.
      lengths: context lengths in tokens; None: the config's, or the trained one.
      documents: documents a task and length; None: the config's, or `Task.num_documents`.
      variants: rotary variants to evaluate with, as expressions; parameters left out are the
        trained variant's, and "trained" is all of it.
      step: checkpoint; None: the newest.
      precision: ask more documents, near where accuracy falls, until every 95% interval of an
        effective context is narrower than this many octaves, or 16 times the documents are asked.
    """

    tasks: Sequence[str] | None = None
    lengths: Sequence[int] | None = None
    documents: NumDocuments | None = None
    variants: Sequence[str] = (TRAINED,)
    step: int | None = None
    precision: Positive | None = None

    def __post_init__(self):
        check(self)
        for task in self.tasks or ():
            evals.parse(task)
        if any(length < 2 for length in self.lengths or ()):
            raise ValueError(f"lengths must be at least 2 tokens, got {min(self.lengths or ())}")
        if self.lengths and max(self.lengths) > MAX_CONTEXT:
            raise ValueError(
                f"lengths must be at most {MAX_CONTEXT} tokens, up to which positions are exact, "
                f"got {max(self.lengths)}"
            )

    def with_step1(self, candidates: str) -> "Options":
        """These options for `--step1 base=1e3,ntk_aware(factor=4)`, the trained variant first.

        Raises:
          ValueError: where a task or variants are chosen already.
        """
        if self.tasks or tuple(self.variants) != (TRAINED,):
            raise ValueError("--step1 chooses its own task and variants: no --tasks, no --rotary")
        variants = [TRAINED]
        for part in split_commas(candidates.removeprefix("base=")):
            try:
                variants.append(f"rope(base={float(part):.17g})")
            except ValueError:
                variants.append(part)
        return dataclasses.replace(self, tasks=["step1"], variants=variants)
