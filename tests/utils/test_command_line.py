"""Errors of the machine end a command in one line; those of the program keep their traceback."""

import errno
import os
import sys
import warnings
from pathlib import Path

import pytest

from ropewalk.utils import plugins
from ropewalk.utils.command_line import Parser, exit_with, next_command


@pytest.fixture(autouse=True)
def same_hooks(monkeypatch):
    """A command that ends in an error of the machine changes hooks of its process."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    with warnings.catch_warnings():
        yield


def message(capsys, error: Exception, *around: Exception) -> str:
    """Return the message of a command that ends with status 1 by `error`, wrapped in others."""

    def main():
        try:
            raise error
        except Exception as cause:
            for wrapper in around:
                raise wrapper from cause
            raise

    with pytest.raises(SystemExit) as ended:
        exit_with(main, "rows are kept")
    assert ended.value.code == 1
    return capsys.readouterr().err.partition(": ")[2]


DISK = OSError(errno.EIO, os.strerror(errno.EIO), "/data/rows")
FULL = "write() failed: No space left on device; writing /data/x.array_record"  # as C++ says it


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([DISK], "/data/rows: Input/output error"),
        ([DISK, ValueError("orbax failed")], "/data/rows: Input/output error"),
        ([RuntimeError(FULL)], FULL),
    ],
)
def test_a_failing_disk_is_a_line(capsys, errors, reason):
    assert message(capsys, *errors) == f"error: {reason}; rows are kept\n"


def test_a_refused_path_is_named_with_advice(capsys):
    with pytest.raises(SystemExit):
        Parser(prog="x").refuse(OSError(errno.EACCES, "Permission denied", "/x.png"))
    line = "x: error: /x.png: Permission denied; choose a path that you may use\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("error", [KeyError("x"), FileNotFoundError(2, "No such file", "x")])
def test_a_defect_keeps_its_traceback(capsys, error):
    with pytest.raises(type(error)):
        message(capsys, error)


@pytest.mark.parametrize(
    "program, line",
    [
        ("ropewalk train", "ropewalk evaluate './-my run'"),
        ("train.py", "python evaluate.py './-my run'"),
        ("../clone/train.py", "python ../clone/evaluate.py './-my run'"),
        ("/clone/interop/__main__.py", "python -m ropewalk evaluate './-my run'"),
    ],
)
def test_the_next_command_is_one_that_exists_where_this_one_did(monkeypatch, program, line):
    monkeypatch.setattr("sys.argv", [program, "demo"])
    monkeypatch.setattr(plugins, "_allowed", set())
    assert next_command("evaluate", Path("-my run")) == line
    plugins.allow("mine.py")
    assert next_command("evaluate", Path("-my run")) == f"{line} --own mine.py"


SWALLOWED = """
import gc, os, signal, time
from ropewalk.utils.command_line import exit_with
def interrupt(phase, info):
    gc.callbacks.clear()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
def main():
    gc.callbacks.append(interrupt)
    gc.collect()
    time.sleep(30)
exit_with(main)
"""


def test_an_interrupt_that_a_callback_swallows_ends_the_command(run_script):
    done = run_script("-c", SWALLOWED, check=False)
    assert done.returncode == 130 and done.stderr == "stopped\n"
