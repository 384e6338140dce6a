"""Tasks that can be trained on, one file each: documents that ask for something said earlier.

    kv        k1 v1 k2 v2 . k1 [v1] k3 v3 . . k2 [v2]        pairs, and some of them again
    lagcopy   a b c d a  b [c] d [a] b  c  d                 one text again and again
    lines     line red-fox: ... <12345>   line old-map: ... <67890>   line red-fox: ... <[12345]>

(in [brackets]: answers). The splits never share a document. Rows of different lengths are to be
comparable, so questions are spread evenly over octaves of distance and their number is a parameter
(`data.documents=2`; in version 1 every key came twice, every copied id was asked, and half of the
distances were spread over tokens).
"""

import pkgutil
import re

from settings.messages import nearest, quoted


def names() -> list[str]:
    """The tasks of this folder, found without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__))


def check(text: str) -> None:
    """Raises ValueError if `text` names neither a task of this folder nor a file of one's own."""
    name = re.split(r"[(\s]", text.strip())[0]
    if name not in names() and not re.match(r"[^()]+\.py:\w+", text):
        raise ValueError(f"unknown retrieval task {quoted(name)}; {nearest(name, names())}")
