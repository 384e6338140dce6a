"""Tasks for training and evaluation, one file each; answers repeat earlier content.

    kv        k1 v1 k2 v2 . k1 [v1] k3 v3 . . k2 [v2]        pairs, and some of them again
    lagcopy   a b c d a  b [c] d [a] b  c  d                 one text again and again
    lines     line red-fox: ... <12345>   line old-map: ... <67890>   line red-fox: ... <[12345]>
    order     k v1 . k v2 . . k [v1]                         the first of two equal keys

Answers are in [brackets]. The splits never share a document. Questions are spread evenly over
octaves of distance and their number is a parameter, so that rows of different lengths are
comparable.
"""

import pkgutil
import re

from ropewalk.utils.messages import nearest, quoted


def names() -> list[str]:
    """Return the names of the tasks without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__))


def check(text: str) -> None:
    """Raise ValueError if `text` names neither a task of this folder nor a user's file."""
    name = re.split(r"[(\s]", text.strip())[0]
    if name not in names() and not re.match(r"[^()]+\.py:\w+", text):
        raise ValueError(f"unknown retrieval task {quoted(name)}; {nearest(name, names())}")
