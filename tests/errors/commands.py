"""Errors of command lines before anything is read."""

from tests.errors.table import Row

ROWS = [
    Row("train.py tinny --workdir new", "unknown config 'tinny'; did you mean 'tiny'? (valid: {})"),
    Row(
        "train.py tiny --workdir new modl.num_layers=2",
        "unknown field 'modl'; did you mean 'model'? (valid: {})",
    ),
    Row("sweep.py tiny --workdir new", "nothing varies: list values with commas {}"),
    Row("evaluate.py nowhere", "nowhere does not exist"),
    Row(
        "train.py tiny --workdir new model.rotary.base=10,100",
        "model.rotary.base=10,100 lists several values; python sweep.py trains a member of each",
    ),
    Row(
        "train.py tiny --workdir new 'model.rotary=rope(base=10),nope'",
        "model.rotary=rope(base=10),nope lists several values; python sweep.py {}",
    ),
    Row(
        "train.py tiny --workdir new start_from=run model.num_layers=1 model.qk_norm=true",
        "start_from={}: its parameter {} is {} but {} in this config's model; set "
        "model.num_layers=2 model.qk_norm=false",
        run=True,
    ),
    *(
        Row(f"{command}{'x' * 3000}", "'{}xx ... xx{}' is no path: a name has 255 bytes at most")
        for command in (
            "train.py tiny --workdir ",
            "evaluate.py ",
            "report.py ",
            "sweep.py tiny seed=0,1 --workdir new/",
        )
    ),
    Row(
        f"train.py tiny --workdir new data.source=jsonl data.path={'x' * 3000}",
        "data: 'xx{} ... {}xx' is no path: a name has 255 bytes at most",
    ),
    Row(
        "train.py tiny --workdir new model.mlp_dim=1e12",
        "parameters and AdamW's moments take {} GiB, and all devices have {} GiB; make the model "
        "smaller, or use more devices",
    ),
    Row(
        "evaluate.py nowhere --tasks='kv(answers=1,needle'",
        "argument --tasks: 'kv(answers=1,needle' lacks its closing ')'",
    ),
    Row("report.py nowhere", "nowhere does not exist"),
    Row("-m theory length --base 1 --head-dim 64", "base must be a finite number above 1, got 1.0"),
    Row("-m data.prepare nowhere", "{}"),
]
