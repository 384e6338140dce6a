"""The commit of the running code."""

import functools
import subprocess
from pathlib import Path


@functools.cache
def current_commit() -> str | None:
    """Return twelve digits of the commit, and a "+" if Python files differ; None outside of git."""

    def run(*arguments: str) -> str:
        process = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            check=True,
        )
        return process.stdout.decode().strip()

    try:
        commit = run("rev-parse", "--short=12", "HEAD")
        changes = run("status", "--porcelain", "--untracked-files=no", "--", "*.py")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + "+" * bool(changes)
