"""Errors in the text of overrides, variants and tasks."""

from configs import find_config
from experiment import overrides
from tests.errors.table import Row


def apply(override: str):
    """Applies one override to a small config."""
    return lambda: overrides.apply(find_config("tiny"), [override])


ROWS = [
    *(
        Row(apply(override), message)
        for override, message in (
            (
                "model.num_layers=1e308",
                "model.num_layers=1e308 must be a whole number of 64 bits, got 1e+308",
            ),
            (
                f"model.num_layers={2**64}",
                f"model.num_layers={2**64} must be a whole number of 64 bits, got {2**64}",
            ),
            (
                "model.num_layers=10001",
                "model: num_layers must be a whole number in [1, 10000], got 10001",
            ),
            ("seed=-1", "config: seed must be a whole number in [0, 4294967295], got -1"),
            (
                f"train.learning_rate={'9' * 400}",
                "train.learning_rate=99{} ... {}99 must be a finite number, got 99{} ... {}99",
            ),
            ("train.num_steps={[]:1}", "train.num_steps={} must be a whole number, got {}"),
            (
                f"train.num_steps={'-' * 5000}1",
                "train.num_steps=--{} ... {}--1 must be a whole number, got '--{} ... {}--1'",
            ),
            ("evals.tasks=[kv,lines", "evals.tasks: '[kv,lines' lacks its closing ']'"),
            ("model.window=[1,2", "model.window: '[1,2' lacks its closing ']'"),
            (
                "model.rotary=rope(base=10",
                "model.rotary: rotary variant 'rope(base=10' lacks its closing ')'",
            ),
            (
                "model.rotary=[rope(base=10)",
                "model.rotary: '[rope(base=10)' lacks its closing ']'",
            ),
            (
                "model.rotary=rope(base=10))",
                "model.rotary: rotary variant 'rope(base=10))' has a ')' that closes no bracket",
            ),
            (
                "model.rotary=rope(base={[]:1})",
                "model.rotary: rope(base=...) must be a number, string or tuple",
            ),
        )
    ),
    Row(
        "evaluate.py run --rotary=[[[nope]]]",
        "rotary pattern '[nope]' is not of the form [variant,[variant,variant]]: a list of "
        "layers, and of the heads of one",
        run=True,
    ),
    Row("evaluate.py run --rotary=[nope", "rotary pattern '[nope' lacks its closing ']'", run=True),
    Row(
        "sweep.py tiny --workdir new 'model.rotary=rope(base=10'",
        "model.rotary: rotary variant 'rope(base=10' lacks its closing ')'",
    ),
    Row(
        "sweep.py tiny --workdir new 'model.rotary=rope(base=10,nope'",
        "model.rotary: 'rope(base=10,nope' lacks its closing ')'",
    ),
    Row(
        f"sweep.py tiny --workdir new seed={','.join('0' * 200)} data.seed={','.join('0' * 200)}",
        "the values listed make more than 1,000 members; list fewer",
    ),
]
