"""Functions that take turns in processes of their own."""

import pytest

from benchmarks import turns


@pytest.mark.slow
def test_a_process_calls_what_its_function_returned_and_says_when_it_ended():
    with turns.process("benchmarks.machine:matmul", 8) as call:
        assert call() is None and call() is None
    with (
        turns.process("benchmarks.machine:matmul", "no size") as call,
        pytest.raises(RuntimeError, match=r"benchmarks\.machine:matmul ended with 1"),
    ):
        call()
