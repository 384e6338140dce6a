"""The commit of the running code."""

import functools
import subprocess
from pathlib import Path


@functools.cache
def current_commit() -> str | None:
    """Return twelve digits of the commit, and a "+" if Python files differ; None outside of git."""
    root = Path(__file__).resolve().parents[1]
    git = functools.partial(subprocess.run, cwd=root, capture_output=True, check=True, text=True)
    try:
        commit = git(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        status = ["git", "status", "--porcelain", "--untracked-files=no", "--", "*.py"]
        return commit + "+" * bool(git(status).stdout.strip())
    except (OSError, subprocess.CalledProcessError):
        return None
