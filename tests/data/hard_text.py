"""Text that tokenizers get wrong, between real text."""

import random
import sysconfig
from pathlib import Path

LIBRARY = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]
SOURCES = [path.read_text(encoding="utf-8", errors="ignore") for path in LIBRARY]
EMOJI = "😀👩‍👩‍👧‍👦🏳️‍🌈é́ñ"
ODD = ["<s>", "</s>", "<unk>", "<0x41>", "<0xE2>", "<key_1>", "<key_70>", "\0", "\t\n", "\r\n"]


def hard_text(size: int) -> str:
    """`size` bytes of real text between runs of spaces, U+2581, control pieces, rare scripts."""
    draw = random.Random(0)

    def stretch() -> str:
        text = draw.choice(SOURCES)
        start = draw.randrange(len(text))
        return text[start : start + 200]

    kinds = [
        lambda: " " * draw.randrange(1, 60),
        lambda: "\u2581" * draw.randrange(1, 5),
        lambda: "".join(chr(draw.randrange(1, 0x3000)) for _ in range(8)),
        lambda: "".join(draw.choice(EMOJI) for _ in range(6)),
        lambda: "a" + "\u0301" * draw.randrange(1, 4),
        lambda: draw.choice(ODD),
        stretch,
        stretch,
    ]
    parts, written = [], 0
    while written < size:
        parts.append(draw.choice(kinds)())
        written += len(parts[-1].encode())
    return "".join(parts)
