"""Run the blocks of commands and of Python in README.md and docs/ in a fresh clone, in order.

    python tests/run_docs.py [FILE.md ...]      default: README.md, then docs/*.md

Commands that are the last cell of a row of a table run too, unless they name a RUN or FILE of the
reader. A comment before a block, <!-- skip: REASON -->, skips it; so does a line that begins with
`make test`. A block of Python that begins with `# NAME.py` is written to that file. Prints a line
per block, and exits with status 1 if a command fails.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^(?:<!-- skip: (?P<reason>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```"
    r"|\| `(?P<cell>(?:python|ropewalk) (?![^`]*\b(?:RUN|FILE)\b)[^`]*)` \|$",
    re.M | re.S,
)


def run_block(block: re.Match, clone: Path) -> int:
    """Run a block in the clone, with its virtual environment; return the exit status."""
    code = block["code"] or block["cell"]
    if block["language"] == "python" and (name := re.match(r"# (\w+\.py)\n", code)):
        (clone / name[1]).write_text(code, encoding="utf-8")
        return 0
    if block["language"] == "python":
        command = ["python", "-c", code]
    else:
        lines = [line for line in code.split("\n") if not line.startswith("make test")]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    path = f"{clone / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "agg"}
    result = subprocess.run(command, cwd=clone, env=environment, stdin=subprocess.DEVNULL)
    return result.returncode


def main(names: list[str]) -> int:
    """Run the blocks of some files, or of all."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "ropewalk"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        pages = [clone / name for name in names]
        for page in pages or [clone / "README.md", *sorted(clone.glob("docs/*.md"))]:
            text = page.read_text(encoding="utf-8")
            for block in BLOCK.finditer(text):
                if block["language"] not in (None, "", "python"):
                    continue
                line = text.count("\n", 0, block.start("code" if block["code"] else "cell"))
                where, start = f"{page.relative_to(clone)}:{line}", time.monotonic()
                result = f"skipped: {block['reason']}"
                if block["reason"] is None:
                    status = run_block(block, clone)
                    failed += status != 0
                    result = "ok" if status == 0 else f"FAILED with status {status}"
                print(f"{where}: {result}, {time.monotonic() - start:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
