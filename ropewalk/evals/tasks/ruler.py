"""RULER's thirteen tasks (Hsieh et al., arXiv 2404.06654), as the tasks of docs/evaluation.md.

A task that does not fit a length, or whose file or text is missing, is skipped, with the reason.
"""

import dataclasses
from collections.abc import Sequence
from typing import Never

from ropewalk.data.task import Sample, Task, TaskContext
from ropewalk.evals.tasks.cwe import Cwe
from ropewalk.evals.tasks.fwe import Fwe
from ropewalk.evals.tasks.needle import Needle
from ropewalk.evals.tasks.qa import Qa
from ropewalk.evals.tasks.vt import Vt
from ropewalk.utils.paths import as_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ruler(Task):
    """RULER; see the module.

    Attributes:
      path: folder of dev-v2.0.json (SQuAD) and hotpot_dev_distractor_v1.json (HotpotQA).
    """

    kind = "score"
    path: str = "."

    def expand(self) -> Sequence[Task]:
        """Return niah_single_1 to 3, multikey_1 to 3, multivalue, multiquery, vt, cwe, fwe, qa."""
        files = "dev-v2.0.json", "hotpot_dev_distractor_v1.json"
        return [
            Needle(),
            Needle(haystack="text"),
            Needle(haystack="text", value_type="uuids"),
            Needle(haystack="text", keys=4),
            Needle(haystack="needle"),
            Needle(haystack="needle", key_type="uuids", value_type="uuids"),
            Needle(haystack="text", values=4),
            Needle(haystack="text", queries=4),
            Vt(),
            Cwe(),
            Fwe(),
            *(Qa(path=str(as_path(self.path) / name)) for name in files),
        ]

    def document(self, context: TaskContext, sample: Sample) -> Never:
        """Refuse: a row is of one task."""
        raise ValueError("ruler is thirteen tasks; name one of them, such as needle or vt")
