"""What `evaluate.py` refuses, before a model is asked anything."""

from configs import find_config
from experiment.run import RunDirectory
from tests.errors.table import Row

ROWS = [
    Row("evaluate.py nowhere", "nowhere does not exist"),
    Row(
        "evaluate.py .",
        ". is neither a run (config.json) nor a sweep directory (sweep.json)",
    ),
    Row(
        "evaluate.py run --lengths=256,long",
        "argument --lengths: 'long' is not a number of tokens, like 4096 or 128k",
    ),
    *(
        Row(f"evaluate.py run {options}", message, run=True)
        for options, message in (
            ("--tasks=kv,line", "unknown task 'line'; did you mean 'lines'? (valid: {})"),
            ("--tasks='kv(keys=4)'", "kv has no parameter 'keys'; {}"),
            (
                "--tasks=lines --lengths=8",
                "lines does not fit length=8; the shortest that works with this tokenizer is {}",
            ),
            ("--lengths=1", "lengths must be at least 2 tokens, got 1"),
            ("--lengths=3", "no task of the config can be asked here; name others with --tasks"),
            ("--precision=0", "precision must be a finite number above 0, got 0.0"),
            ("--documents=0", "documents must be a whole number of at least 1, got 0"),
            ("--step=7", "run has no checkpoint of step 7; it has [1, 2]"),
            (
                "--step=new",
                "--step new is neither numbers of checkpoints, like 500,900, nor `stages`",
            ),
            (
                "--rotary='ropee(base=10)'",
                "unknown rotary variant 'ropee'; did you mean 'rope'? {}",
            ),
            ("--rotary=ntk_aware", "ntk_aware needs factor: write ntk_aware(factor=...)"),
            ("--rotary=nope,yarn", "yarn needs factor: write yarn(factor=...)"),
            (
                "--step1=base=10 --tasks=kv",
                "--step1 chooses its own task and variants: no --tasks, no --rotary",
            ),
        )
    ),
    Row(
        "evaluate.py fresh",
        "fresh has no checkpoint; train it first",
        given=lambda _: RunDirectory("fresh").write_config(find_config("tiny"), []),
    ),
    Row(
        "evaluate.py run",
        "{}results.jsonl:1: a row of another schema: lacks 'split'{}",
        run=True,
        files={"run/results.jsonl": '{"task": "kv"}\n'},
    ),
]
