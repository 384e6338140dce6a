"""The Tab key completes commands, configs, options and fields, as bash asks for it."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("argcomplete")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sw", ["sweep "]),
        ("train own", ["own_text "]),
        ("train tiny --wo", ["--workdir "]),
        ("train tiny --workdir runs/x train.learn", ["train.learning_rate="]),
        ("theory bo", ["bound "]),
        ("train nothing train.learn", [""]),
    ],
)
def test_a_line_is_completed(line, expected, environment):
    line = f"ropewalk {line}"
    variables = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
    path = os.pathsep.join([str(ROOT), *sys.path])
    variables |= {"COMP_TYPE": "9", "_ARGCOMPLETE_IFS": "\n", "PYTHONPATH": path}
    command = f"{sys.executable} -m ropewalk 8>&1 9>&2 >{os.devnull}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment | variables, capture_output=True, text=True
    )
    assert done.stdout.split("\n") == expected, done.stderr
