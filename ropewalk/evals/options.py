"""Options of an evaluation, checked before JAX is imported."""

import dataclasses
import itertools
from collections.abc import Sequence

from ropewalk import evals
from ropewalk.experiment.config import TRAINED, Lengths, NumDocuments, chosen_rotary
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary as rotary_lib
from ropewalk.utils.checks import check
from ropewalk.utils.expressions import split_commas
from ropewalk.utils.messages import nearest, quoted

FORMATS = "table", "csv", "json", "markdown"  # of printed results


def variant_names() -> list[str]:
    """List the variants that an evaluation may use, without those of users' files."""
    return [TRAINED, *rotary_lib.variants()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an evaluation.

    Attributes:
      tasks: expressions, `needle(haystack=noise)`; None: the config's tasks.
      lengths: context lengths in tokens; None: the config's lengths, or the trained length.
      documents: documents per task and length; None: the config's number, or
        `Task.num_documents`.
      variants: rotary variants to evaluate with, as expressions. Omitted parameters are the trained
        variant's; "trained" is that variant itself.
      step: checkpoint; None: the newest.
    """

    tasks: Sequence[str] | None = None
    lengths: Lengths | None = None
    documents: NumDocuments | None = None
    variants: Sequence[str] = (TRAINED,)
    step: int | None = None

    def __post_init__(self):
        check(self)
        evals.parse_all(self.tasks or ())
        known = variant_names()
        for variant in self.variants:
            name = variant.partition("(")[0]
            if name.isidentifier() and name not in known:
                raise ValueError(f"unknown rotary variant {quoted(name)}; {nearest(name, known)}")

    def with_step1(self, candidates: str) -> "Options":
        """Return options for `--step1 base=1e3,ntk_aware(factor=4)`, the trained variant first.

        Raises:
          ValueError: if tasks or variants are set already.
        """
        if self.tasks or tuple(self.variants) != (TRAINED,):
            raise ValueError("--step1 sets the task and the variants; remove --tasks and --rotary")
        variants = [TRAINED]
        for part in split_commas(candidates.removeprefix("base=")):
            try:
                variants.append(f"rope(base={float(part):.17g})")
            except ValueError:
                variants.append(part)
        return dataclasses.replace(self, tasks=["step1"], variants=variants)


def checkpoints(
    runs: Sequence[RunDirectory], steps: str | None
) -> list[tuple[Sequence[RunDirectory], int | None]]:
    """Return the steps of `--step`, each with the runs to evaluate.

    Raises:
      ValueError: if `steps` is neither numbers nor `stages`, or a run lacks a step.
    """
    if steps == "stages":
        ends = [(run, end) for run in runs for end in run.ends]
        by_step = dict.fromkeys(end for _, end in ends)
        return [([run for run, last in ends if last == end], end) for end in by_step]
    if steps is None:
        return [(runs, None)]
    try:
        numbers = [int(step) for step in steps.split(",")]
    except ValueError:
        raise ValueError(
            f"--step {steps} is not allowed; write steps of checkpoints, such as 500,900, or stages"
        ) from None
    for run, step in itertools.product(runs, numbers):
        run.find_step(step)
    return [(runs, number) for number in dict.fromkeys(numbers)]


def check_variants(variants: Sequence[str], runs: Sequence[RunDirectory]) -> None:
    """Raise ValueError for a variant that applies to none of the runs."""
    for text in variants:
        errors = []
        for run in runs:
            try:
                chosen_rotary(text, run.config)
            except ValueError as error:
                errors.append(error)
        if len(errors) == len(runs):
            raise errors[0]
