"""Words for generated documents.

Keys of `lines` documents are adjective-noun; held-out nouns occur in no training document.
"""

import tomllib
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ADJECTIVES, NOUNS, HELD_OUT_NOUNS = (
    tuple(_LISTS[name].split()) for name in ("adjectives", "nouns", "held_out_nouns")
)
