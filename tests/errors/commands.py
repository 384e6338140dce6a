"""What command lines refuse before anything is read."""

from tests.errors.table import Row

ROWS = [
    Row("train.py tinny --workdir new", "unknown config 'tinny'; did you mean 'tiny'? (valid: {})"),
    Row(
        "train.py tiny --workdir new modl.num_layers=2",
        "unknown field 'modl'; did you mean 'model'? (valid: {})",
    ),
    Row("sweep.py tiny --workdir new", "nothing varies: list values with commas {}"),
    Row("evaluate.py nowhere", "nowhere does not exist"),
    Row("report.py nowhere", "nowhere does not exist"),
    Row("-m theory length --base 1 --head-dim 64", "base must be a finite number above 1, got 1.0"),
    Row("-m data.prepare nowhere", "{}"),
]
