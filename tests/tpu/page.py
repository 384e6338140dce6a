"""Commands of docs/scaling.md that tests run unchanged."""

import re
import shlex
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs/scaling.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Return the commands of code blocks, each on one line."""
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, flags=re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    in_blocks = [" ".join(shlex.split(part, comments=True)) for part in lines if part.strip()]
    # `&&` joins two commands.
    return [command for line in in_blocks for command in line.split(" && ")]


COMPILED = re.findall(r"`((?:\w+) --topology [^`]+)`", TEXT)
