"""Errors of the machine end a command in one line; those of the program keep their traceback."""

import errno
import os

import pytest

from utils.command_line import exit_with


def message(capsys, error: Exception, *around: Exception) -> str:
    """What a command says that ends with `error`, in other errors; its status must be 1."""

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


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR])
@pytest.mark.parametrize("around", [(), (ValueError("orbax failed"),)])
def test_a_failing_disk_is_a_line(capsys, number, around):
    reason = os.strerror(number)
    said = message(capsys, OSError(number, reason, "/data/rows"), *around)
    assert said == f"error: /data/rows: {reason}; rows are kept\n"


def test_errors_of_libraries_in_other_languages_are_lines(capsys):
    reason = "write() failed: No space left on device; writing /data/x.array_record"
    assert message(capsys, RuntimeError(reason)) == f"error: {reason}; rows are kept\n"


def test_no_memory_is_a_line(capsys):
    assert message(capsys, MemoryError()) == "error: not enough memory; rows are kept\n"


@pytest.mark.parametrize("error", [KeyError("x"), FileNotFoundError(2, "No such file", "x")])
def test_a_defect_keeps_its_traceback(capsys, error):
    with pytest.raises(type(error)):
        message(capsys, error)
