"""`python -m tpu.aot` as a process: libtpu and the plug-in of CUDA stay in it."""

import json
import subprocess
import sys
from typing import Any

from ropewalk.tpu import compiled, hlo


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ropewalk", "aot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def run_report(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    report = compiled.Report(**json.loads(done.stdout))
    return report._replace(collectives=[hlo.Collective(**c) for c in report.collectives])
