"""Importing this module ends a command in one line if the Python lacks the packages of ropewalk.

Commands import it first: otherwise the first package that is missing would print a traceback.
"""

import importlib.util
import os
import sys
from pathlib import Path

if importlib.util.find_spec("sentencepiece") is None:  # required, and rarely anywhere else
    activate = Path(__file__).parents[1] / ".venv/bin/activate"
    command = f"source {os.path.relpath(activate)}"
    if not activate.exists():
        command = f"make -C {os.path.relpath(Path(__file__).parents[1])} setup && {command}"
    print(f"{sys.executable} lacks the packages of ropewalk. Run: {command}", file=sys.stderr)
    sys.exit(2)
