"""Errors of `evaluate.py` before it runs a model."""

import json
import shlex

from configs import find_config
from experiment.run import RunDirectory
from tests.errors.table import Row

BOOK = {"text": "a short book", "url": "http://www.gutenberg.org/ebooks/7"}
CASE = {
    "prompt": "line a: <1>\nline b: <7>\n",
    "correct_line": "line a: <1>\n",
    "expected_number": 1,
    "random_idx": ["a", 0],
}
CASES = {
    "broken.jsonl": "{}\n",
    "text.jsonl": "not json\n",
    "case.jsonl": json.dumps(CASE | {"prompt": 200 * CASE["prompt"]}) + "\n",
    "other.jsonl": json.dumps(CASE | {"expected_number": 2}) + "\n",
    "short.jsonl": json.dumps(BOOK) + "\n",
    "twice.jsonl": 2 * (json.dumps(BOOK) + "\n"),
    "books/test/7.txt": b"caf\xe9",
}

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
            (
                "--lengths=3",
                "no task of the config can be evaluated here; choose others with --tasks",
            ),
            ("--precision=0", "precision must be a finite number above 0, got 0.0"),
            (
                "--lengths=64,1e9",
                "lengths must be at most 16777216 tokens, up to which positions are exact, got "
                "1000000000",
            ),
            ("--documents=0", "documents must be a whole number in [1, 1000000], got 0"),
            (
                "--documents=999999999999",
                "documents must be a whole number in [1, 1000000], got 999999999999",
            ),
            ("--step=7", "run has no checkpoint of step 7; it has [1, 2]"),
            (
                "--step=new",
                "--step new is not allowed; write steps of checkpoints, such as 500,900, or stages",
            ),
            (
                "--rotary='ropee(base=10)'",
                "unknown rotary variant 'ropee'; did you mean 'rope'? {}",
            ),
            ("--rotary=ntk_aware", "ntk_aware needs factor: write ntk_aware(factor=...)"),
            ("--rotary=nope,yarn", "yarn needs factor: write yarn(factor=...)"),
            (
                "--step1=base=10 --tasks=kv",
                "--step1 sets the task and the variants; remove --tasks and --rotary",
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
    *(
        Row(f"evaluate.py run --tasks={shlex.quote(task)}{more}", says, run=True, files=CASES)
        for task, more, says in (
            (
                "lines(template=official,cases='broken.jsonl')",
                "",
                "broken.jsonl:1: a case without 'prompt'",
            ),
            (
                "lines(template=official,cases='other.jsonl')",
                "",
                "other.jsonl:1: the prompt does not contain the case's line with its number",
            ),
            (
                "lines(template=official,cases='text.jsonl')",
                "",
                "text.jsonl:1: not JSON (Expecting value: line 1 column 1 (char 0))",
            ),
            (
                "lines(template=official,cases='nowhere')",
                "",
                "lines: nowhere is not a file of cases",
            ),
            (
                "lines(template=official,cases='case.jsonl')",
                "",
                "lines: the cases of case.jsonl have up to {} tokens with this tokenizer and do "
                "not fit length=64; ask for --lengths {} or a file with fewer lines",
            ),
            (
                "lines(cases='x')",
                "",
                "lines(cases=...) holds official prompts: add template=official",
            ),
            (
                "lines(template=official,answers=2)",
                "",
                "lines(answers=...) needs template=completion: an official prompt has one answer",
            ),
            (
                "lines(template=new)",
                "",
                "template must be one of its words, got 'new'; (valid: completion, official)",
            ),
            ("kv(pairs=3,answers=4)", "", "answers=4 must be at most pairs=3"),
            (
                "lagcopy(text=book)",
                "",
                "text must be one of its words, got 'book'; (valid: control, natural, random)",
            ),
            ("lagcopy(lag=1)", "", "lag must be a whole number of at least 2, got 1"),
            (
                "lagcopy(lag=20)",
                " --lengths 21",
                "lagcopy(lag=20) does not fit length=21; the shortest that works with "
                "this tokenizer is {}",
            ),
            (
                "lagcopy(text=natural,answers=4)",
                "",
                "lagcopy(answers=...) needs text=random: other texts have fixed answers",
            ),
            (
                "lagcopy(text=natural)",
                " --lengths 1M",
                "lagcopy(text=natural) at length 1048574 needs more text in one piece: the longest "
                "document of validation has {} tokens; ask for --lengths {} or less",
            ),
            (
                "needle(haystack=essay)",
                "",
                "haystack must be one of its words, got 'essay'; (valid: noise, text)",
            ),
            (
                "needle(cue=rule)",
                "",
                "cue must be one of its words, got 'rule'; did you mean 'ruler'? (valid: easy, "
                "gkamradt, ruler)",
            ),
            ("needle(depths=1)", "", "depths must be a whole number of at least 2, got 1"),
            (
                "needle(cue=easy)",
                "",
                "needle(cue=easy) has one needle, in text that differs between documents: write "
                "needle(haystack=text,cue=easy)",
            ),
            (
                "needle(haystack=text,cue=gkamradt,keys=4)",
                "",
                "needle(cue=gkamradt) has one needle, in text that differs between documents: "
                "write needle(haystack=text,cue=gkamradt)",
            ),
            ("fixed_target(target=0)", "", "target must be a whole number of at least 1, got 0"),
            (
                "fixed_target",
                " --lengths 128",
                "fixed_target does not fit length=128; the shortest that works with this tokenizer "
                "is 288",
            ),
            (
                "sliding_window(stride=65)",
                " --lengths 64",
                "sliding_window with stride=65 skips tokens between windows of length=64; "
                "write sliding_window(stride=32) or less, or ask for --lengths 65",
            ),
            (
                "sliding_window(tokens=32,stride=8)",
                " --lengths 64",
                "sliding_window with tokens=32 does not fill a window of length=64; write "
                "sliding_window(tokens=64) or more, or ask for --lengths 32 or less",
            ),
            (
                "repeated(token=9999)",
                "",
                "repeated has no parameter 'token'; did you mean 'tokens'? (valid: lag, tokens)",
            ),
            (
                "pg19(path='nowhere',stride=8)",
                "",
                "nowhere: no PG-19 test split; give path=DIR with pg19/0.1.1/ "
                "(tensorflow-datasets, array_record), test/10146.txt ... (DeepMind's files) "
                "or test.jsonl[.gz|.zst] in it",
            ),
            (
                "pg19(path='broken.jsonl',stride=8)",
                "",
                'broken.jsonl:1: no "text" in this JSON line',
            ),
            (
                "pg19(path='twice.jsonl',stride=8)",
                "",
                "twice.jsonl: 1 books have the id of another one",
            ),
            ("pg19(path='books',stride=8)", "", "books/test/7.txt: broken UTF-8 at byte 4"),
            (
                "pg19(path='short.jsonl',stride=8)",
                " --lengths 64",
                "pg19 at length 64 needs longer books: the longest has {} tokens; "
                "ask for --lengths {} or less",
            ),
            ("gone.py:Echo", "", "no file gone.py"),
        )
    ),
]
