"""Errors of `generate.py` and `inference.generate`."""

import numpy as np

from experiment import load
from inference import generate
from tests.errors.table import Row

ROWS = [
    Row("generate.py nowhere --prompt x", "nowhere does not exist"),
    *(
        Row(f"generate.py run --prompt x {options}", message, run=True)
        for options, message in (
            ("--max-new-tokens 0", "max_new_tokens must be a whole number in [1, 16777216], got 0"),
            ("--max-new-tokens many", "argument --max-new-tokens: invalid int value: 'many'"),
            ("--temperature=-1", "temperature must be a finite number of at least 0, got -1.0"),
            ("--temperature nan", "temperature must be a finite number of at least 0, got nan"),
            ("--temperature 1 --top-k 0", "top_k must be a whole number of at least 1, got 0"),
            ("--temperature 1 --top-p 0", "top_p must be a finite number in (0, 1], got 0.0"),
            ("--temperature 1 --top-p 1.5", "top_p must be a finite number in (0, 1], got 1.5"),
            (
                "--top-k 5",
                "top_k and top_p need sampling, and temperature=0 takes the most likely token: "
                "set a temperature above 0, like 0.8",
            ),
            ("--seed=-1", "seed must be a whole number in [0, 4294967295], got -1"),
            ("--stop ''", "stop must be non-empty strings, got ''"),
            (
                "--dtype float16",
                "dtype must be one of its words, got 'float16'; did you mean 'bfloat16'? "
                "(valid: bfloat16, float32)",
            ),
            ("--prompts nowhere", "--prompts nowhere: cannot be read (No such file or directory)"),
            ("--step 7", "run has no checkpoint of step 7; it has [1, 2]"),
            (
                "--rotary 'ropee(base=10)'",
                "unknown rotary variant 'ropee'; did you mean 'rope'? {}",
            ),
        )
    ),
    *(
        Row(f"generate.py run --prompts {name}", message, run=True, files={name: content})
        for name, content, message in (
            ("empty", "\n\n", "--prompts empty: has no prompt; write one per line"),
            ("latin", b"caf\xe9\n", "--prompts latin: cannot be read (not UTF-8)"),
        )
    ),
    Row(
        "generate.py run",
        'no prompt: give --prompt TEXT ("" begins a document)',
        given=lambda patch: patch.setattr("sys.stdin.isatty", lambda: True, raising=False),
        run=True,
    ),
    *(
        Row(lambda prompts=prompts: generate(load("run"), prompts), message, run=True)
        for prompts, message in (
            ("x", "prompts must be a list of texts or ids, got 'x'"),
            ([[]], "prompt 0 has no ids: give at least BOS, [1]"),
            ([[1], [1.5]], "tokens must be a text or whole numbers [B, T], not float64 {}"),
            ([np.array([9999])], "ids 9999 ... 9999 do not all lie in 0 ... {}"),
        )
    ),
    Row(
        lambda: generate(load("run"), ["x"]),
        "run/tokenizer.model: no tokenizer there (No such file or directory)",
        given=lambda _: __import__("os").remove("run/tokenizer.model"),
        run=True,
    ),
]
